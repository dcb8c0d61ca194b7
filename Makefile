# Needs only make and Python 3.11 or newer; everything else is installed into $(VENV).
PYTHON ?= python3
VENV ?= .venv

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
SUPPORTED := import sys; sys.exit(sys.version_info < (3, 11))

# Tests that fork thousands of lives run apart from those that load many libraries: a fork copies what is loaded.
EXPLORING := tests/engine tests/hypothesis tests/incidents tests/reference

.DEFAULT_GOAL := test
.PHONY: agents demo docs judge test

demo: $(VENV)/.installed
	$(BIN)/python -m pytest --once-chaos examples
	$(BIN)/python examples/five_cuts/table.py

test: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto $(EXPLORING)
	$(BIN)/python -m pytest -n auto $(EXPLORING:%=--ignore=%)

# Explores every part of the reference on every store, and the examples: about twenty minutes.
judge: $(VENV)/.installed-test
	$(BIN)/python -m pytest --once-chaos tests/reference examples

# ONCE_AGENT_ENVS=DIR keeps the frameworks' environments from run to run.
agents: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m agents tests/examples/test_agents.py

# What tests/docs/test_site.py builds too: a warning fails.
docs: $(VENV)/.installed-docs
	$(BIN)/python -W error -m mkdocs build --strict --site-dir build/docs

# A stamp newer than pyproject.toml means there is nothing to install.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[test]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[docs]'
	@touch $@ $(VENV)/.installed

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "No '$(PYTHON)' on the PATH. Install Python 3.11 or newer, or name one: make PYTHON=python3.13" >&2; \
	  exit 1; }
	@$(PYTHON) -c '$(SUPPORTED)' || { \
	  echo "'$(PYTHON)' is $$($(PYTHON) --version 2>&1); 3.11 or newer is needed." >&2; \
	  echo "Name a newer one: make PYTHON=python3.13" >&2; \
	  exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  rm -f $(VENV)/bin/python; \
	  echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt install python3-venv" >&2; \
	  exit 1; }
