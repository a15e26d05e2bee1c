# make up: from a bare machine to a running service.   make test: the whole test suite.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

.PHONY: help up down install dev models chromium test screenshots docs lint format clients bench soak \
  gpu-check clean

help:
	@echo "make up          start the service (installs what it needs) and analyse a bundled track"
	@echo "make down        end it"
	@echo "make install     what the service needs;   make dev: what its developers need as well"
	@echo "make test        run the whole test suite"
	@echo "make screenshots take the pictures of the pages and of a plot anew, docs/screenshots/"
	@echo "make docs        the book as a site, build/site/, with every link checked"
	@echo "make lint        ruff, mypy, import contracts"
	@echo "make clients     write what the clients take from the OpenAPI document (needs npm)"
	@echo "make bench       benchmarks, results below benchmarks/results/"
	@echo "make soak        long fault and load suites"
	@echo "make gpu-check   parity, memory and speed on a GPU; with DRY=1 a rehearsal on the CPU"

# $(1): what of the project is installed; $(2): its size in the environment.
define install
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
	  || { echo "afa needs Python 3.11 to 3.14; try: make PYTHON=python3.13 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "python3 -m venv failed; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "installing dependencies into $(VENV) (about $(2), some minutes the first time)"
	@$(BIN)/python -m pip install --progress-bar on --disable-pip-version-check \
	  -c configs/constraints.txt -e '$(1)' | grep -v '^Requirement already'
	@$(BIN)/python -m serve_app.local.torchaudio_cpu
	@touch $@
endef

$(STAMP): pyproject.toml configs/constraints.txt
	$(call install,.,6 GB; 2 GB with a CPU build of torch)

$(DEV_STAMP): pyproject.toml configs/constraints.txt
	$(call install,.[dev],7.5 GB; 3.5 GB with a CPU build of torch)
	@touch $(STAMP)

install: $(STAMP)

dev: $(DEV_STAMP)

models: $(STAMP)
	@$(BIN)/afa models pull

up: $(STAMP)
	@$(BIN)/afa up

down: $(STAMP)
	@$(BIN)/afa down

# The pages are tested in a real Chromium; without one those tests are skipped and say so.
chromium:
	@command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null \
	  || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	       && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	  || echo "NO CHROMIUM: the pages will not be tested; on Debian: apt-get install chromium"

test: $(DEV_STAMP) models chromium
	$(BIN)/python -m pytest -n 4 --dist loadscope --no-loadscope-reorder -m 'not gpu and not slow'

screenshots: $(DEV_STAMP) models chromium
	$(BIN)/python -m pytest -q tests/browser/test_screenshots.py \
	  tests/afa/test_library.py::test_a_track_draws_itself tests/system/test_traces.py --screenshots docs/screenshots

docs: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  -c configs/constraints.txt -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet -f docs/site/mkdocs.yml

lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clients: $(DEV_STAMP)
	$(BIN)/python -m clients.generate

bench: $(DEV_STAMP)
	$(BIN)/afa bench

soak: $(DEV_STAMP) models
	$(BIN)/python -m pytest -m slow --timeout 0

gpu-check:
	@$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m benchmarks.gpu $(if $(DRY),--dry)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache *.egg-info
