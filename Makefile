# `make help` is the supported surface. Everything sets itself up: a fresh machine needs Python 3.11, make and,
# where releases.hashicorp.com cannot be reached, Go.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.set-up
CONFIG  ?= configs/windows-2022-containerd.yaml
OUT     ?= out
TARGET  ?=
REHEARSE ?=
ARGS    ?=
IMAGEGEN := $(BIN)/imagegen
# Compiled modules are kept, also for who sets PYTHONDONTWRITEBYTECODE: a third of the fast tests' time is compiling.
# Beside the environment, not in the tree.
PYTEST  := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/pycache $(BIN)/pytest
# Every test that compares with golden files.
GOLDENS := tests/golden tests/errors tests/rules tests/doctor tests/unit/config/test_schema.py tests/unit/config/test_reference.py
# The fast tests make many small files: in memory, where the system has a folder for that.
MEMORY  := $(firstword $(wildcard /dev/shm) $(TMPDIR) /tmp)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list.
	@echo "imagegen: Windows Kubernetes node images for Azure and AWS from one declarative config"
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'
	@echo
	@echo "  CONFIG=FILE     the config (default $(CONFIG))"
	@echo "  TARGET=NAME     the target to build, where the config has several on the cloud"
	@echo "  REHEARSE=1      build against stand-ins of the clouds on this machine"
	@echo "  ARGS='...'      more options of imagegen build: ARGS='--set kubernetes.version=1.36.3 --label team=web'"
	@echo
	@echo "make ends with its own code 2 whenever imagegen fails: the code of imagegen is in make's last line (Error 5)."

.PHONY: setup
setup: $(STAMP) ## Make the development environment in .venv.

$(STAMP): pyproject.toml requirements-dev.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --constraint requirements-dev.lock --editable '.[rehearsal]' --group dev
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Rehearse both clouds at once: build, publish, print the manifests. No account needed.
	@$(IMAGEGEN) tools
	@$(MAKE) --no-print-directory --jobs=2 demo-aws demo-azure

.PHONY: demo-aws demo-azure
demo-aws demo-azure: demo-%:
	@$(IMAGEGEN) build $(CONFIG) --target $* --rehearse --plain --out $(OUT)

.PHONY: build-aws build-azure
build-aws: $(STAMP) ## Build and publish CONFIG on AWS (REHEARSE=1: on stand-ins).
build-azure: $(STAMP) ## Build and publish CONFIG on Azure (REHEARSE=1: on stand-ins).
build-aws build-azure: build-%:
	$(IMAGEGEN) build $(CONFIG) --target $(or $(TARGET),$*) --out $(OUT) $(if $(filter-out 0,$(REHEARSE)),--rehearse) $(ARGS)

.PHONY: validate
validate: $(STAMP) ## Check CONFIG: its form and its rules.
	$(IMAGEGEN) validate $(CONFIG) $(ARGS)

.PHONY: check
check: $(STAMP) ## Format, lint, types and the fast tests.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	TMPDIR=$(MEMORY) $(PYTEST) -q -n 2 -m "not e2e"

.PHONY: test
test: check ## Everything: the check, then whole rehearsals with real Packer.
	$(IMAGEGEN) tools
	$(PYTEST) -q -n 2 -m e2e

.PHONY: golden
golden: $(STAMP) ## Rewrite the golden files that differ; read the difference before you commit it.
	@IMAGEGEN_UPDATE_GOLDEN=1 $(PYTEST) -q --tb=short -rN $(GOLDENS) || { \
	  echo "A test that rewrites its file fails. Running again what failed:"; \
	  $(PYTEST) -q --last-failed $(GOLDENS); }

.PHONY: figures
figures: $(STAMP) ## Count the structure of the code: what docs/figures.md records.
	$(BIN)/python tests/bench/structure.py

.PHONY: bench
bench: $(STAMP) ## Measure what is promised: start-up, rehearsals, WinRM cost.
	$(IMAGEGEN) tools
	$(BIN)/python tests/bench/bench.py
