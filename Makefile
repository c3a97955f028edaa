# Two commands matter: `make run` (the main job on an embedded cluster) and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup run test check lint types pure-tests ray-tests fabric-tests bench peers soak clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Railweave needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv module; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable .
	@# pip would do this on one core. A few files of some packages are of other Pythons.
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null 2>&1 || true
	@$(BIN)/python -m compileall -q placement agents scheduler
	@touch $@

run: setup
	$(BIN)/railweave demo

check: lint types

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	@mkdir -p build/types/railweave
	@for part in scheduler placement agents; do ln -sfn ../../../$$part build/types/railweave/$$part; done
	MYPYPATH=build/types nice -n 5 $(BIN)/mypy -p railweave

# Tests on Ray clusters mostly wait for processes, the others compute: side by side they fill two
# cores. What computes gives way, since what waits has time limits. All are run, whichever fails.
test: lint
	@echo "mypy, the tests without Ray and those on Ray clusters run side by side;" \
	  "each one's output follows when it has ended"
	@failed=0; \
	$(MAKE) --no-print-directory --jobs=3 --keep-going --output-sync=target \
	  types pure-tests ray-tests || failed=1; \
	$(MAKE) --no-print-directory fabric-tests || failed=1; \
	exit $$failed

pure-tests: setup
	nice -n 5 $(BIN)/python -m pytest tests/property tests/unit

# The solver's loops are compiled first, not by daemons that tests kill while they compile.
ray-tests: setup
	$(BIN)/python -c "from railweave.placement import warm_up; warm_up()"
	$(BIN)/python -m pytest tests/ray

# On their own, because they compare measured times with predicted ones.
fabric-tests: setup
	$(BIN)/python -m pytest tests/fabric

# Options go through: make bench ARGS="--full --record"
bench: setup peers
	$(BIN)/python -m benchmarks $(ARGS)

# What the benchmark compares with. Scotch is a program of Debian; elsewhere install it yourself.
peers: $(VENV)/.peers-installed build/scotch

$(VENV)/.peers-installed: requirements-bench.lock $(STAMP)
	$(BIN)/pip install --quiet --requirement requirements-bench.lock
	@touch $@

build/scotch:
	@mkdir -p build
	@rm -rf build/scotch.part && mkdir build/scotch.part
	@if command -v scotch_gmap-int64 > /dev/null; then echo "Scotch is installed"; \
	elif cd build/scotch.part && apt-get download -qq scotch libscotch-7.0 > /dev/null 2>&1; then \
	  for package in *.deb; do dpkg-deb -x "$$package" .; done; rm -- *.deb; \
	else echo "Scotch is left out: install the program scotch_gmap-int64 (Debian: apt-get install scotch)"; fi
	@mv build/scotch.part $@

soak: setup
	$(BIN)/python -m pytest -m soak --timeout 7200
	RAILWEAVE_TEST_EFFORT=20 $(BIN)/python -m pytest tests/property --timeout 7200

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
