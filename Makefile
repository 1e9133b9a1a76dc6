# The tasks of this repository. `make` alone prints the menu.

VENV := .venv
PYTHON ?= python3
export PYTHON
export PIP_DISABLE_PIP_VERSION_CHECK := 1
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

DIR ?= example
CMD ?= mcp-filesystem
ARGS ?= $(if $(filter mcp-filesystem,$(CMD)),--config config/mcp-filesystem.yaml)
TESTS ?= tests
# One more than the two cores of a small machine: there is always a test that only waits.
WORKERS ?= 3
BENCH ?= $(shell grep -l '^if __name__' benchmarks/*.py)
IMAGE ?= armarium

# Each stamp is newer than what was installed from, so a second run installs nothing.
CREATED := $(VENV)/.created
RUNTIME := $(VENV)/.runtime
DEVELOPMENT := $(VENV)/.development
CLIENTS := tests/node/node_modules/.installed
CONSOLE := src/armarium/surfaces/console/files/built-from
CONSOLE_TOOLS := web/node_modules/.installed-tools

.PHONY: help up console test check bench soak build run docker-build lock docs recording clean

help: ## print this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' Makefile

up: ## start the server on example/ (DIR=… your own, WRITE=1 to allow writing, PORT=…)
	@# Without the console, for example without a network, the server works.
	@$(MAKE) --jobs=2 $(RUNTIME) $(if $(ARMARIUM_SKIP_CONSOLE),,$(CONSOLE)) || $(MAKE) $(RUNTIME)
	@$(VENV)/bin/armarium up "$(DIR)" $(if $(WRITE),--write) $(if $(PORT),--port $(PORT))

console: $(CONSOLE) ## build the web console

test: $(DEVELOPMENT) $(CLIENTS) $(CONSOLE) $(CONSOLE_TOOLS) ## install what the tests need and run them all (TESTS=… for some, WORKERS=0 one by one)
	@scripts/system-deps
	$(VENV)/bin/pytest --numprocesses $(WORKERS) --dist worksteal -m "not soak" $(TESTS)

check: $(DEVELOPMENT) $(CONSOLE_TOOLS) ## lint, format, types and the direction of imports
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python scripts/console --check

bench: $(DEVELOPMENT) $(CLIENTS) ## measure against the peers, into benchmarks/results/ (BENCH=… for some)
	@scripts/system-deps
	@for file in $(BENCH); do echo "== $$file"; $(VENV)/bin/python "$$file" || exit 1; done

soak: $(DEVELOPMENT) $(CLIENTS) ## the long campaigns that `make test` leaves out, and every property test with random examples
	@scripts/system-deps
	SOAK=1 $(VENV)/bin/pytest -rA -m "soak or hypothesis" $(TESTS)

build: $(DEVELOPMENT) ## wheel and source distribution into dist/
	$(VENV)/bin/python -m build

run: $(RUNTIME) ## run an installed command (CMD=mcp-filesystem ARGS=…)
	@test -x "$(VENV)/bin/$(CMD)" || { echo "no command '$(CMD)'; hint: CMD=armarium or CMD=mcp-filesystem" >&2; exit 2; }
	@$(VENV)/bin/$(CMD) $(ARGS)

docker-build: ## build the container image (IMAGE=…)
	docker build --tag $(IMAGE) .

lock: $(DEVELOPMENT) $(CLIENTS) ## rewrite the lock files (UPGRADE=1 takes newer versions)
	@scripts/lock $(VENV)

docs: $(RUNTIME) $(CONSOLE_TOOLS) ## regenerate docs/reference, docs/benchmarks.md and the tree in docs/architecture.md
	$(VENV)/bin/python scripts/write-docs

recording: $(DEVELOPMENT) $(CONSOLE) ## make the pictures of docs/images: a terminal session, and the console
	$(VENV)/bin/python scripts/record-terminal
	$(VENV)/bin/python scripts/record-console

clean: ## remove everything the other targets made
	rm -rf $(VENV) dist build tests/node/node_modules web/node_modules web/.node src/armarium/surfaces/console/files .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(CREATED): scripts/venv
	@scripts/venv $(VENV)
	@touch $@

$(RUNTIME): requirements.lock pyproject.toml $(CREATED)
	@echo "installing Armarium into $(VENV)"
	@$(VENV)/bin/pip install --quiet --requirement requirements.lock
	@ARMARIUM_SKIP_CONSOLE=1 $(VENV)/bin/pip install --quiet --no-deps --editable .
	@$(VENV)/bin/python -m compileall -q src
	@touch $@

$(DEVELOPMENT): requirements-dev.lock $(RUNTIME)
	@echo "installing the development tools into $(VENV)"
	@$(VENV)/bin/pip install --quiet --requirement requirements-dev.lock
	@touch $@

# Beside the packages of Python, not after them.
$(CONSOLE): $(shell find web -name node_modules -prune -o -name .node -prune -o -type f -print) scripts/console | $(CREATED)
	@$(VENV)/bin/python scripts/console
	@touch $@

$(CONSOLE_TOOLS): web/package-lock.json web/package.json web/.npmrc scripts/console $(DEVELOPMENT)
	@echo "installing the checks of the console into web"
	@$(VENV)/bin/python scripts/console --tools
	@touch $@

$(CLIENTS): tests/node/package-lock.json tests/node/package.json scripts/node-tools $(DEVELOPMENT)
	@echo "installing the MCP clients into tests/node"
	@scripts/node-tools $(VENV)
	@touch $@
