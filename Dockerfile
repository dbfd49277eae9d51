# One image for every process; which one it is, the arguments say: `run detector`, `topics apply`, …
FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements-image.lock ./
RUN python -m venv /opt/faultline \
 && /opt/faultline/bin/pip install --no-cache-dir --require-hashes -r requirements-image.lock
# The build backend comes by hash as well, from the lock that development uses, and stays out of the image.
COPY requirements.lock ./
RUN python -m venv /tmp/backend \
 && /tmp/backend/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY pyproject.toml README.md ./
COPY faultline faultline
COPY streams streams
COPY runbooks runbooks
COPY connectors connectors
RUN /tmp/backend/bin/pip wheel --no-deps --no-build-isolation --no-index -w /tmp/wheel . \
 && /opt/faultline/bin/pip install --no-deps --no-index /tmp/wheel/*.whl

# What `faultline run archive` needs besides: `docker build --target archive`.
FROM build AS build-archive
COPY requirements-archive.lock ./
RUN /opt/faultline/bin/pip install --no-cache-dir --require-hashes -r requirements-archive.lock

FROM python:3.11-slim AS base
# A fixed id, so that a cluster that demands non-root users can check it.
RUN useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin faultline
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
