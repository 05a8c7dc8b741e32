# Everything a contributor runs, one command each. `make` alone lists them.

PYTHON ?= python3
VENV ?= .venv
CARGO ?= cargo

bin := $(VENV)/bin
host = $(shell rustc -vV | sed -n 's/^host: //p')
install := $(bin)/python -m pip install --constraint constraints.txt
# The compiled module is built again when one of these is newer than the last installation.
sources := pyproject.toml constraints.txt Cargo.toml Cargo.lock $(shell find rust/src -name '*.rs')

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.user: $(VENV)/pyvenv.cfg $(sources)
	$(install) '.[executorch]'
	@touch $@

$(VENV)/.dev: $(VENV)/pyvenv.cfg $(sources)
	$(install) --editable '.[executorch,dev]'
	@touch $@ $(VENV)/.user

$(VENV)/.release: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	$(install) maturin abi3audit 'nox[uv]' twine ziglang zizmor
	@touch $@

.PHONY: demo
demo: $(VENV)/.user ## Install mutcanon with ExecuTorch and run `mutcanon demo`
	$(bin)/mutcanon demo

.PHONY: dev
dev: $(VENV)/.dev ## Install mutcanon from this tree with all that its development needs

.PHONY: format
format: dev ## Format the code and apply safe fixes
	$(bin)/ruff check --fix
	$(bin)/ruff format
	$(CARGO) fmt

.PHONY: lint
lint: dev $(VENV)/.release ## Check format, lints, types and stubs
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy
	$(bin)/python -m mypy.stubtest mutcanon._core
	$(bin)/zizmor --offline --pedantic .github
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --all-targets --features python -- -D warnings

.PHONY: test
test: test-rust test-python ## Run every test

.PHONY: test-rust
test-rust: ## Run the planner's tests; needs no Python
	$(CARGO) test --locked
	$(CARGO) test --locked --features faults --test faults
	$(CARGO) test --locked --features faults --test faults

.PHONY: test-python
test-python: dev ## Run the Python tests; ARGS='-m "not slow"' leaves the real models out
	$(bin)/python -m pytest -n auto --dist loadfile $(ARGS)

FUZZ_SECONDS ?= 60
fuzz := rust/fuzz
.PHONY: fuzz
fuzz: ## Fuzz what reads archives, FUZZ_SECONDS=60 for each target
	cd $(fuzz) && $(CARGO) build --release --target $(host)
	@mkdir -p $(fuzz)/target/found $(fuzz)/artifacts
	@for target in $(basename $(notdir $(wildcard $(fuzz)/fuzz_targets/*.rs))); do \
		mkdir -p $(fuzz)/target/found/$$target $(fuzz)/corpus/$$target; \
		log=$(fuzz)/target/$$target.log; \
		echo "$$target: $(FUZZ_SECONDS) s, log in $$log"; \
		$(fuzz)/target/$(host)/release/$$target \
			$(fuzz)/target/found/$$target $(fuzz)/corpus/$$target \
			-artifact_prefix=$(fuzz)/artifacts/$$target- -dict=$(fuzz)/graph.dict \
			-max_total_time=$(FUZZ_SECONDS) -max_len=65536 -timeout=10 -rss_limit_mb=2048 \
			-print_final_stats=1 >$$log 2>&1 || { tail -n 40 $$log; exit 1; }; \
		grep -e number_of_executed -e peak_rss $$log; \
	done

.PHONY: soak
soak: dev ## Search for counter-examples; ARGS='--programs 10000 --seed 1 --pte 0.02'
	$(bin)/python -W ignore tools/soak.py $(ARGS)

.PHONY: bless
bless: dev ## Rewrite expected plans and texts; review the diff
	MUTCANON_BLESS=1 $(CARGO) test --locked --test filetests
	EXPECTTEST_ACCEPT=1 $(bin)/python -m pytest $(ARGS)

.PHONY: bench
bench: dev ## Measure; ARGS=--large adds a million nodes and a large archive
	$(bin)/python -W ignore benches/canonicalize.py $(ARGS)
	$(bin)/python -W ignore benches/check.py
	$(bin)/python -W ignore benches/lowering.py
	$(bin)/python -W ignore benches/decode.py
	$(bin)/python -W ignore benches/archive.py $(ARGS)
	$(bin)/python -W ignore benches/batch.py

# zig links against an old libc, so that the wheel runs on old Linux; elsewhere the system's own linker does.
portable := $(if $(filter Linux,$(shell uname)),--zig --compatibility manylinux2014)

.PHONY: docs
docs: dev ## Build the site into build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --quiet --site-dir build/site

.PHONY: wheel
wheel: $(VENV)/.release ## Build the wheel and the source distribution into dist/, check both, test each on every Python
	rm -rf dist
	PATH=$(abspath $(bin)):$$PATH maturin build --release --locked --sdist $(portable) --out dist
	$(bin)/twine check --strict dist/*
	$(bin)/abi3audit --strict dist/*.whl
	$(bin)/nox $(ARGS)

.PHONY: versions
versions: $(VENV)/.release ## Test each supported pair of torch and executorch; about 5 GB and 5 minutes for each
	$(bin)/nox -s versions
	$(bin)/python tools/versions.py

.PHONY: clean
clean: ## Remove what the commands above made, the environment included
	rm -rf $(VENV) .nox build dist target python/mutcanon/_core.*.so
