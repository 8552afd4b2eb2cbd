# Two commands do everything on a fresh machine with Python, pip and make:
#   make benchmark    set up .venv and run the main job
#   make test         set up .venv, lint, check types and run the tests
# The tests run the circuit simulator ngspice and look at pages in Chromium and Node: `make test`
# installs what is missing where it can, and says what is skipped where it cannot.
# `make results` says which results are of other code than what is here.
# `make docs` builds the site into site/, `make wheel` builds the wheel and uses it in an empty
# environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: benchmark results test docs lint types tests ngspice browser wheel clean

benchmark: $(STAMP)
	$(BIN)/toreqprop benchmark

results: $(STAMP)
	$(BIN)/python scripts/stale_results.py

test: lint types tests

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python -m tests.docs.look_at_site site

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

tests: $(STAMP) ngspice browser
	$(BIN)/python -m pytest -n 2

ngspice: $(STAMP)
	scripts/install_ngspice.sh $(VENV)/ngspice

browser:
	scripts/install_browser.sh

wheel:
	PYTHON=$(PYTHON) scripts/check_wheel.sh

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[bench,compiled,tune,distributed,tensorboard,tables,export,dev,docs]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[ray]" || echo "Ray does not install here: its test is skipped."
	touch $(STAMP)

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache
