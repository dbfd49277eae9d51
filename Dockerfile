# One image for every process; which one it is, the arguments say: `run detector`, `topics apply`, …
# A release names the base by its digest (docs/release.md): --build-arg BASE=python:3.11-slim@sha256:…
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
# The build backend and pip come by hash as well, and stay out of the image.
COPY requirements-build.lock ./
RUN python -m venv /tmp/backend \
 && /tmp/backend/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock
COPY requirements-image.lock ./
# Without pip: whoever gets into a container finds no installer in it.
RUN python -m venv --without-pip /opt/faultline \
 && /tmp/backend/bin/pip --python /opt/faultline/bin/python install --no-cache-dir --require-hashes -r requirements-image.lock
COPY pyproject.toml README.md ./
COPY faultline faultline
COPY streams streams
COPY runbooks runbooks
COPY connectors connectors
RUN /tmp/backend/bin/pip wheel --no-deps --no-build-isolation --no-index -w /tmp/wheel . \
 && /tmp/backend/bin/pip --python /opt/faultline/bin/python install --no-cache-dir --no-deps --no-index /tmp/wheel/*.whl

# What `faultline run archive` needs besides: `docker build --target archive`.
FROM build AS build-archive
COPY requirements-archive.lock ./
RUN /tmp/backend/bin/pip --python /opt/faultline/bin/python install --no-cache-dir --require-hashes -r requirements-archive.lock

FROM ${BASE} AS base
# A fixed id, so that a cluster that demands non-root users can check it.
RUN useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin faultline \
 && rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/lib/python3*/ensurepip /usr/local/bin/pip*
COPY --from=build /opt/faultline /opt/faultline
ENV PATH=/opt/faultline/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
ENTRYPOINT ["faultline"]
CMD ["--help"]

# The stand-ins for Slack and Jira that the compose file's profile `standins` starts: `docker build --target sandbox`.
FROM base AS sandbox
COPY sandbox /opt/sandbox/sandbox
ENV PYTHONPATH=/opt/sandbox

FROM base AS archive
COPY --from=build-archive /opt/faultline /opt/faultline

# Last, so that a build without a target makes the image for production: nothing of `sandbox` is in it.
FROM base
