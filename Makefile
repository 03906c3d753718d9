# `make help` lists the supported targets. They set up everything that they need: a fresh machine needs Python 3.11,
# make and, for all tests or if it cannot reach releases.hashicorp.com, Go.

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
# Keep compiled modules even if PYTHONDONTWRITEBYTECODE is set: compiling takes a third of the time of the fast tests,
# and an installed imagegen is compiled. They are in the environment's folder, not in the source tree.
COMPILED := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/pycache
PYTEST  := $(COMPILED) $(BIN)/pytest
# All tests that compare with golden files.
GOLDENS := tests/golden tests/signatures tests/attest tests/samples tests/errors tests/rules tests/doctor tests/unit/config/test_schema.py tests/unit/config/test_reference.py
# The folders with the first half of the fast tests: those that make plans or verify signatures, and import no SDK of a
# cloud. Both halves take as long.
FIRST_HALF := $(addprefix tests/,authenticode golden rules signatures $(addprefix unit/,\
                base catalog config pipeline plan render rules settle steps))
# The fast tests create many small files: use memory if the system has a folder for it.
MEMORY  := $(firstword $(wildcard /dev/shm) $(TMPDIR) /tmp)

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help.
	@echo "imagegen: Windows Kubernetes node images for Azure and AWS from one declarative config"
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'
	@echo
	@echo "  CONFIG=FILE     the config (default $(CONFIG))"
	@echo "  TARGET=NAME     the target to build, if the config has several on the cloud"
	@echo "  REHEARSE=1      build with local stand-ins of the clouds"
	@echo "  ARGS='...'      additional options of imagegen build: ARGS='--set kubernetes.version=1.35.8 --label team=web'"
	@echo
	@echo "make always exits with code 2 if imagegen fails: its last line shows the exit code of imagegen (Error 5)."

.PHONY: setup
setup: $(STAMP) ## Create the development environment in .venv.

$(STAMP): pyproject.toml requirements-dev.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --constraint requirements-dev.lock --editable '.[rehearsal]' --group dev
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Rehearse a build on both clouds: build, publish, boot a node, print the manifests. No account needed.
	@$(IMAGEGEN) tools
	@$(MAKE) --no-print-directory --jobs=2 demo-aws demo-azure

.PHONY: demo-aws demo-azure
demo-aws demo-azure: demo-%:
	@$(IMAGEGEN) build $(CONFIG) --target $* --rehearse --plain --out $(OUT)

.PHONY: build-aws build-azure
build-aws: $(STAMP) ## Build and publish CONFIG on AWS (REHEARSE=1: on local stand-ins).
build-azure: $(STAMP) ## Build and publish CONFIG on Azure (REHEARSE=1: on local stand-ins).
build-aws build-azure: build-%:
	$(IMAGEGEN) build $(CONFIG) --target $(or $(TARGET),$*) --out $(OUT) $(if $(filter-out 0,$(REHEARSE)),--rehearse) $(ARGS)

.PHONY: validate
validate: $(STAMP) ## Validate CONFIG.
	$(IMAGEGEN) validate $(CONFIG) $(ARGS)

.PHONY: check
check: $(STAMP) ## Check format, lint and types, and run the fast tests.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory --jobs=2 fast-first fast-second

# Two processes for two cores, each with its half of the tests. Workers of pytest-xdist would each collect all tests and
# make all plans, and send five messages per test: a third of the time. Neither half may write pytest's cache.
.PHONY: fast-first fast-second
fast-first: FOLDERS := $(FIRST_HALF)
fast-second: FOLDERS := tests $(addprefix --ignore=,$(FIRST_HALF) tests/rehearsal)
fast-first fast-second: $(STAMP)
	@TMPDIR=$(MEMORY) $(PYTEST) -q -p no:logging -p no:cacheprovider -m "not e2e" $(FOLDERS) >$(VENV)/$@.txt 2>&1; \
	  status=$$?; cat $(VENV)/$@.txt; exit $$status

.PHONY: check-rehearsal
check-rehearsal: $(STAMP) ## Run the fast tests of the rehearsal: the stand-ins of clouds, machine and node.
	@TMPDIR=$(MEMORY) $(PYTEST) -q -p no:logging -m "not e2e" tests/rehearsal

# A rehearsal mostly waits for its programs: four at once keep two cores busy.
.PHONY: test
test: check check-rehearsal ## Run all tests: the fast ones, then whole rehearsals with real Packer.
	$(IMAGEGEN) tools
	$(PYTEST) -q -n 4 -m e2e

# Each image is booted, and random tests run thousands of examples.
.PHONY: nightly-tests
nightly-tests: $(STAMP) ## Boot a node from every kind of image, and run the random tests with all their examples.
	IMAGEGEN_NIGHTLY=1 $(PYTEST) -q -n 2 -m e2e tests/e2e/test_boot_matrix.py tests/e2e/test_random_faults.py tests/unit/config/test_generated_configs.py

.PHONY: archive-mutants
archive-mutants: $(STAMP) ## Change 2,000 archives at random, and compare what is read with what bsdtar unpacks.
	IMAGEGEN_ARCHIVE_MUTANTS=2000 $(PYTEST) -q -m e2e tests/e2e/test_bsdtar.py

.PHONY: mutants
mutants: $(STAMP) ## Plant each mistake of tests/mutants, and see which test finds it. ARGS='--quick rules- D01'.
	$(BIN)/python -m tests.mutants.run $(ARGS)

.PHONY: golden
golden: $(STAMP) ## Rewrite the golden files that differ. Read the diff before you commit it.
	@IMAGEGEN_UPDATE_GOLDEN=1 $(PYTEST) -q --tb=short -rN $(GOLDENS) || { \
	  echo "A test that rewrites its golden file fails. Running the failed tests again:"; \
	  $(PYTEST) -q --last-failed $(GOLDENS); }

.PHONY: figures
figures: $(STAMP) ## Count the figures in docs/figures.md.
	$(BIN)/python tests/bench/structure.py

.PHONY: windows-cases
windows-cases: $(STAMP) ## Render the cases for Windows to OUT, an empty folder. Needs Go. See tests/windows/README.md.
	@$(BIN)/python -m tests.windows.render $(OUT)

# For maintainers. ANSWERS is a folder of saved answers; without it, the command shows how to save them.
ANSWERS ?=
.PHONY: catalogue
catalogue: $(STAMP) ## Compare the catalogue with ANSWERS, a folder of saved answers. Without it: show how to save them.
	@$(BIN)/python -m tests.catalogue.compare $(or $(ANSWERS),--help)

.PHONY: bench
bench: $(STAMP) ## Measure start-up, rehearsals and WinRM traffic.
	$(IMAGEGEN) tools
	$(COMPILED) $(BIN)/python -m tests.bench.bench
