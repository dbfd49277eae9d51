# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# The stamp carries the lock's checksum, so a changed lock re-installs and a fresh checkout of the same lock does not.
READY  := $(VENV)/.ready-$(shell cksum requirements.lock | cut -d' ' -f1)

# Hundreds of processes import the same modules: where an image sets this variable, each would compile them all anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick check format testbed bench fuzz soak soak-mixed upgrade storm crash-matrix compete nightly lock docs sbom manifests clean nightly-tests

$(READY):
	@$(PYTHON) -c 'import sys; sys.exit("Faultline needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked dependencies into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index -e .
	@touch $@

demo: $(READY)
	@$(BIN)/faultline demo $(ARGS)

# What is not built yet is built beside the quick tests. If that fails, the second call says why: it tries again.
test: $(READY)
	@$(BIN)/python -m tests.testbed.build --if-toolchain >/dev/null 2>&1 & build=$$!; \
	$(MAKE) --no-print-directory check || { kill $$build 2>/dev/null; exit 1; }
	@$(BIN)/python -m tests.testbed.build --if-toolchain
	@$(BIN)/python -m tests.side_by_side server $(ARGS)

quick: $(READY)
	@$(BIN)/python -m pytest -q -n auto --dist loadfile --tier quick $(ARGS)

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory quick

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

testbed: $(READY)
	@$(BIN)/python -m tests.testbed.build

bench: $(READY)
	@$(BIN)/python -m bench.$(NAME) $(ARGS)

# Coverage-guided; ARGS="detector --seconds 600" for one target and longer. What is found is kept in .fuzz/.
fuzz: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-fuzz.lock
	@$(BIN)/python -m tests.fuzz $(ARGS)

# Ten million records through detectors that are killed every few seconds; ARGS="--lines 1000000 --every 3" for less.
soak: $(READY)
	@$(BIN)/python -m tests.testbed.build --if-toolchain
	@$(BIN)/python -m tests.soak.run $(ARGS)

# Every process under load and blows for ten minutes, then audited from outside; ARGS="--minutes 60 --lines-per-s 20000" for the hour.
soak-mixed: $(READY)
	@$(BIN)/python -m tests.testbed.build --if-toolchain
	@$(BIN)/python -m tests.soak.mixed.run $(ARGS)

# Every process from the previous release to this one under load, one at a time, and back; ARGS="--from TAG" for another one.
upgrade: $(READY)
	@$(BIN)/python -m tests.testbed.build --if-toolchain
	@$(BIN)/python -m tests.upgrade.run $(ARGS)

# 2,000 nodes that miss their leases at once, and one dead GPU among the others; ARGS="--nodes 200" for less.
storm: $(READY)
	@$(BIN)/python -m tests.testbed.build --if-toolchain
	@$(BIN)/python -m tests.storm.run $(ARGS)

# The responder killed at every point of every step; ARGS="--only drain_node" or "--sample 50" for less.
crash-matrix: $(READY)
	@$(BIN)/python -m tests.testbed.build --if-toolchain
	@$(BIN)/python -m tests.crash_matrix.run $(ARGS)

# Ten thousand effects by responders that freeze, die and come back; ARGS="--effects 1000 --responders 2" for less.
compete: $(READY)
	@$(BIN)/python -m tests.testbed.build --if-toolchain
	@$(BIN)/python -m tests.crash_matrix.compete $(ARGS)

# All that takes too long for every commit, one after the other; one that fails does not keep the next from running.
nightly:
	@TEST_EFFORT=full $(MAKE) --no-print-directory --keep-going -j1 quick nightly-tests storm soak soak-mixed upgrade crash-matrix compete fuzz

nightly-tests: $(READY)
	@$(BIN)/python -m tests.testbed.build --if-toolchain
	@$(BIN)/python -m tests.side_by_side nightly $(ARGS)

# What the chart and the kustomizations have in common: k8s/chart is the source.
manifests: $(READY)
	@$(BIN)/python -m tests.testbed.build helm
	@$(BIN)/python -m tests.deploy.render

# The image's Python packages as CycloneDX, and docs/licences.md.
sbom: $(READY)
	@$(BIN)/python -m tests.supply_chain.sbom $(ARGS)

docs: $(READY)
	@$(BIN)/python -m faultline.reference docs
	@$(BIN)/python -m sandbox.thread_examples docs/examples/threads

lock:
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra dev pyproject.toml -o requirements.lock
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url -c requirements.lock pyproject.toml -o requirements-image.lock
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url -c requirements.lock --extra archive pyproject.toml -o requirements-archive.lock
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url -c requirements.lock --group build -o requirements-build.lock
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --group fuzz -o requirements-fuzz.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
