# Two commands matter: `make run` (the main job on an embedded cluster) and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup run test check bench soak clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Railweave needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv module; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable .
	@touch $@

run: setup
	$(BIN)/railweave demo

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build/types/railweave
	@for part in scheduler placement agents; do ln -sfn ../../../$$part build/types/railweave/$$part; done
	MYPYPATH=build/types $(BIN)/mypy -p railweave

test: check
	$(BIN)/python -m pytest

bench: setup
	$(BIN)/python -m benchmarks

soak: setup
	$(BIN)/python -m pytest -m soak --timeout 7200

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
