# Everything runs from .venv, made on first use; set PYTHON to choose another interpreter (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
# one thread for each of the test processes: torch's own threads would stand in each other's way; a process that has
# nothing left to do takes half of what another one still has, so that all are busy until the end
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal
# modules are compiled when they are first imported, as most never are, and then kept, whatever the shell's setting
export PYTHONDONTWRITEBYTECODE :=
PROJECTS := pyproject.toml builtin/pyproject.toml documents/pyproject.toml service/pyproject.toml lab/pyproject.toml constraints.txt
# uv installs in a third of the time that pip takes, from the indexes that pip is set to; where it fails, pip installs
INDEXES = $$($(BIN)/python -m pip config list | sed 's/\\n/ /g' | \
	sed -nE "s/.*\.((extra-)?index-url|find-links)='(.*)'/\1 \3/p" | awk '{ for (i = 2; i <= NF; i++) print "--" $$1, $$i }')
UV = $(BIN)/python -m uv pip install --quiet --python $(BIN)/python --index-strategy unsafe-best-match $(INDEXES)
PIP = $(BIN)/python -m pip install --quiet --no-compile
INSTALL = @echo "installing to .venv"; install() { $(UV) "$$@" || $(PIP) "$$@"; }; install --constraint constraints.txt

.PHONY: demo test check lint quick test-lowest test-newest soak engines-check backends-check docs bench bench-detect audit release clean

demo: .venv/.generate
	$(BIN)/dgmark demo

test: check

# The checks of the sources fill the time in which tests wait; what they say comes after the tests.
check: .venv/.dev
	@$(MAKE) --no-print-directory lint > .venv/lint.txt 2>&1 & lint=$$!; $(PYTEST); tests=$$?; \
	wait $$lint; lint=$$?; cat .venv/lint.txt; exit $$((tests ? tests : lint))

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# For daily work: what runs in a minute and a half on two cores. `make test` runs the rest too: slow tests, lab, training, docs.
quick: .venv/.dev
	$(BIN)/ruff check .
	$(PYTEST) -m "not slow" --ignore lab --ignore tests/docs

# The tests with the lowest and with the newest versions that pyproject.toml allows, each in an environment made anew.
# torch alone is taken by pip, at the version of constraints.txt: an index may have several builds of it, and the lowest
# takes gigabytes. With PYTHON=python3.13 the environment is one of another Python.
test-lowest: RESOLUTION = lowest-direct
test-newest: RESOLUTION = highest
test-lowest test-newest: BIN = .venv/$(@:test-%=%)/bin
test-lowest test-newest: test-%: .venv/.python
	rm -rf .venv/$*
	$(PYTHON) -m venv .venv/$*
	$(PIP) --constraint constraints.txt uv
	$(PIP) --no-deps --constraint constraints.txt torch
	$(BIN)/python -m pip freeze | grep '^torch==' > .venv/$*/torch.txt
	$(UV) --resolution $(RESOLUTION) --overrides .venv/$*/torch.txt \
		--editable ./builtin --editable '.[dev]' --editable ./documents --editable ./service --editable './lab[bench]'
	$(PYTEST)
	sh deploy/smoke.sh $(BIN)/python

# The adapter for SGLang against SGLang's own package: downloads it to .venv/engines, installs nothing.
engines-check: .venv/.dev
	mkdir -p .venv/engines
	DGMARK_ENGINES=.venv/engines $(BIN)/python -m pytest tests/engines

# Models that other runtimes compute, against the runtimes: installs them to .venv, where they stay. llama.cpp is compiled,
# which takes half an hour on two cores; pip keeps what it has built.
backends-check: .venv/.backends
	$(BIN)/python -m pytest tests/models/test_gguf.py tests/models/test_mlx.py

# Attempts to break dgmark; docs/reliability.md says what they hold it to, and what SOAK_ROUNDS and SOAK_SEED set.
soak: .venv/.dev
	DGMARK_FUZZED_DOCUMENTS=300 $(BIN)/python -m pytest documents/tests/test_fuzz.py
	DGMARK_ALL_CASES=1 $(PYTEST) -m "cover or soak"
	DGMARK_ALL_CASES=1 $(PYTEST) tests/detection/test_q_values.py tests/decode/test_block_edits.py tests/decode/test_edit_loop.py tests/engines/test_sglang.py
	DGMARK_ODD_VALUES_EACH=1 $(BIN)/python -m pytest tests/test_public_arguments.py
	DGMARK_DTYPE=bf16 $(PYTEST)
	$(BIN)/python -m pytest -rP soak

# The site goes to site/; open site/index.html. `python docs/reference_pages.py` makes its reference pages from the code.
docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

# README's picture of what the demo prints, with a new key.
docs/demo.svg: .venv/.generate
	FORCE_COLOR=1 TERM=xterm-256color COLUMNS=112 $(BIN)/dgmark demo 2> /dev/null | $(BIN)/python docs/demo_svg.py

bench: .venv/.dev
	$(BIN)/python lab/benchmarks/detect_speed.py
	$(BIN)/python lab/benchmarks/decode_speed.py

BASELINES := kgw unigram pattern-mark pattern-mark,pattern_length=4 gloaguen gloaguen,offsets=[-1,1] dmark lr-dwm cdmark gumbel tango
# HUMAN is a JSON Lines file of unmarked text with id, domain, lang and text; none comes with the package.
bench-detect: .venv/.dev
	$(BIN)/python lab/benchmarks/detect_speed.py
	$(BIN)/python lab/benchmarks/level.py $(HUMAN) --test rule=position
	$(BIN)/python lab/benchmarks/level.py $(HUMAN) --share none --keys 1 --passages 200 $(BASELINES:%=--test 'rule=%')

# Looks every pinned version up in the Python advisory database, which takes a network; --strict fails if it cannot.
audit: .venv/release/.tools
	.venv/release/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

# The distributions from the last commit, built twice from fresh checkouts, compared bit by bit, and checked as the index
# checks them, and a list of the versions that were tested (SBOM). dist/ holds them, ready to be signed and published.
release: .venv/release/.tools
	rm -rf build/release dist
	set -e; SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); export SOURCE_DATE_EPOCH; \
	for round in 1 2; do \
		git clone --quiet . build/release/checkout-$$round; \
		for part in . builtin documents service lab; do \
			.venv/release/bin/python -m build --no-isolation --outdir build/release/dist-$$round \
				build/release/checkout-$$round/$$part > build/release/log-$$round; \
		done; \
		.venv/release/bin/cyclonedx-py requirements --pyproject build/release/checkout-$$round/pyproject.toml \
			--output-reproducible --output-file build/release/dist-$$round/dgmark.cdx.json \
			build/release/checkout-$$round/constraints.txt; \
	done
	diff --recursive build/release/dist-1 build/release/dist-2
	.venv/release/bin/twine check --strict build/release/dist-1/*.whl build/release/dist-1/*.tar.gz
	mv build/release/dist-1 dist
	cd dist && sha256sum *

clean:
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "dgmark needs Python 3.11 or newer; set PYTHON")'
	$(PYTHON) -m venv .venv
	$(PIP) --constraint constraints.txt uv || true
	touch $@

.venv/.generate: $(PROJECTS) | .venv/.python
	$(INSTALL) --editable ./builtin --editable '.[generate]' --editable ./documents --editable ./service
	touch $@

.venv/.dev: $(PROJECTS) | .venv/.python
	$(INSTALL) --editable ./builtin --editable '.[dev]' --editable ./documents --editable ./service --editable './lab[bench]'
	touch $@

.venv/.backends: .venv/.dev
	$(INSTALL) --editable '.[gguf,mlx]'
	touch $@

.venv/release/.tools: release-tools.txt | .venv/.python
	$(PYTHON) -m venv .venv/release
	.venv/release/bin/python -m pip install --quiet --requirement release-tools.txt
	touch $@

.venv/.docs: $(PROJECTS) | .venv/.python
	$(INSTALL) --editable ./builtin --editable '.[docs]' --editable ./documents --editable ./service --editable ./lab
	touch $@
