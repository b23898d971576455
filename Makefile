# Every target makes the virtual environment it needs; nothing else has to be installed first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH := $(VENV)/.installed-bench

.PHONY: demo test test-llm check soak bench bench-large clean

demo: $(STAMP)
	@$(BIN)/turnlog demo

# Two tests at a time; ARGS="-n 0" runs one after the other, as a debugger needs it.
test: $(STAMP)
	$(BIN)/pytest -q -n 2 --dist worksteal $(ARGS)

# A real model in this process: 270 MB to install, a few minutes to run.
test-llm: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[llm-test]'
	$(BIN)/pytest -q tests_llm $(ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	PYTHONPATH=domain:application:infrastructure $(BIN)/lint-imports
	$(MAKE) test

# The laws at length: random logs, six processes at one store, 300 killed ones for each store.
soak: $(STAMP)
	HYPOTHESIS_PROFILE=soak $(BIN)/pytest -q tests/laws tests/branches tests/audit tests/processes

bench: $(BENCH)
	@for name in core peers directory recall erasing postgres models chat audit report rebuild storage; do $(BIN)/python -m benchmarks.$$name $(ARGS) && echo; done

$(STAMP): pyproject.toml
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "Installing turnlog and what it needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# A million messages: minutes to write, and 1.3 GB of memory for the file where there is a tmpfs.
bench-large: $(STAMP)
	$(BIN)/python -m benchmarks.core --large

# The libraries that the benchmark compares with; where they cannot be had, it leaves them out and says so.
$(BENCH): $(STAMP)
	@echo "Installing what the benchmark compares with ..."
	@if $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'; then touch $@; fi

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
