# The README's two commands are `make demo` and `make test`; each installs what it needs into .venv, and no more.
PYTHON ?= python3
BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of processes; each would compile every module anew

BEGUN := $(shell date +%s)
TAKEN = taken=$$(($$(date +%s) - $(BEGUN))); echo "make $@: $$((taken / 60)) min $$((taken % 60)) s"

.PHONY: help demo check quick test oldest engines lint types kernels collected bench docs site dist clean
help:            ## what can be made
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

# pip's output, shortened as it comes, and how long it took here the last time. Bytecode is compiled on first import:
# for all modules, most of which nobody imports, it would take as long again. No stamp is left by a pip that fails.
LAST = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/querywise/seconds-$(notdir $@)
SHORT = /^ *(Collecting|Processing) / {n = split($$2, at, "/"); print "  fetching " at[n]; fflush()} \
	/^Installing collected/ {print "  unpacking " NF - 3 " packages"; fflush()}
define install
	@last=$$(cat '$(LAST)' 2>/dev/null); echo "Installing querywise$(1) into .venv ($${last:-a minute or two}$${last:+ s last time})"
	@began=$$(date +%s); rm -f $@; test -x $(BIN)/python || $(PYTHON) -m venv .venv || exit; \
	{ $(BIN)/python -m pip install --no-compile --progress-bar off --disable-pip-version-check --editable '.$(1)' && \
	touch .venv/installed $@; } | awk '$(SHORT)'; test -f $@ || exit; \
	took=$$(($$(date +%s) - began)); echo "Installed in $$took s"; \
	mkdir -p "$$(dirname '$(LAST)')" && echo $$took > '$(LAST)' || true
endef

.venv/installed: pyproject.toml
	$(call install)

.venv/ready: pyproject.toml
	$(call install,[dev])

demo: .venv/installed  ## search, rank and compare on the documentation of your own Python
	@$(BIN)/querywise demo
	@$(TAKEN)

lint: .venv/ready      ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready     ## types
	$(BIN)/mypy

kernels: .venv/ready   ## what is compiled on first use, once for all processes of the tests
	$(BIN)/python -m tests.compile_kernels

# pytest rewrites the assertions of a test module when it first imports it: half a minute for all, and for every process
# that finds nothing kept. What cannot be collected fails in the run that follows, with its reason.
collected: .venv/ready # all tests, compiled once for all processes of the tests
	@$(BIN)/pytest --collect-only --quiet > /dev/null || true

# Processes whose threads spin would wait for each other, hence the policy. tests/conftest.py divides the tests into groups
# and says which begin. Tests of clusters and browsers mostly wait: more processes than cores use the time.
CORES := $(shell getconf _NPROCESSORS_ONLN)
PYTEST = OMP_WAIT_POLICY=passive $(BIN)/pytest --dist loadgroup --no-loadscope-reorder

check: .venv/ready     ## style, types and the quick tests: the everyday run
	@$(MAKE) --no-print-directory -j 3 lint types quick
	@$(TAKEN)

quick: .venv/ready
	$(PYTEST) -n $(CORES) --hypothesis-profile check -m "not cluster and not browser and not engines and not slow and not real_data"

test: .venv/ready      ## style, types and all tests but those of real engines: before a change is handed in
	@$(MAKE) --no-print-directory -j 2 kernels collected lint types
	$(PYTEST) -n $$(($(CORES) + 3)) -m "not engines"
	@$(TAKEN)

# Packages of which we use parts that are not documented, in the oldest versions that pyproject.toml allows.
OLDEST := .venv/oldest
oldest: .venv/ready    ## tests of what could break with another version, with the oldest versions allowed
	rm -rf $(OLDEST)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(OLDEST) simsimd \
		$$(sed -nE 's/^  "(uvicorn|usearch|ray)(\[client\])?>=([0-9.]+),.*/\1==\3/p' pyproject.toml)
	PYTHONPATH=$(OLDEST) $(PYTEST) -n 2 tests/test_connections.py tests/test_approximate_search.py
	PYTHONPATH=$(OLDEST) $(PYTEST) tests/test_environments.py -k cluster
	@$(TAKEN)

# Fetches on first use, into $QUERYWISE_ENGINES or ~/.cache/querywise/engines. What a machine lacks is said and skipped.
engines: .venv/ready   ## tests in real search engines, which it fetches and starts (docs/engines/testing.md)
	$(BIN)/python -m tests.engines fetch
	$(PYTEST) -n 2 -m engines tests/engines
	@$(TAKEN)

bench: .venv/ready     ## what it costs, as ratios against what you would run instead
	$(BIN)/python -m benchmarks

docs: .venv/ready      ## write the generated pages anew, and build the site into site/
	$(BIN)/python docs/generate.py
	@$(MAKE) --no-print-directory site
	@echo "To read it: $(BIN)/python -m http.server --directory site"

# Not with --quiet, under which warnings are not counted.
site: .venv/ready      ## build the site into site/ from the pages as they are; a lost link or anchor is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: .venv/ready      ## the sdist and the wheel, checked, in dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*

clean:           ## remove the environment and all caches
	rm -rf .venv dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
