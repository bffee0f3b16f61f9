# Everything runs from .venv, made on first use; set PYTHON to choose another interpreter (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: demo test check bench bench-quick bench-detect train-storyteller train-judge train-shipped clean

demo: .venv/.generate
	$(BIN)/dgmark demo

test: check

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest

# The quality figures generate 400 texts (about two hours on two cores); the run resumes where it stopped.
bench: bench-quick
	$(BIN)/python benchmarks/corpus.py
	$(BIN)/python benchmarks/quality.py

bench-quick: .venv/.dev
	$(BIN)/python benchmarks/detect_speed.py
	$(BIN)/python benchmarks/decode_speed.py

# HUMAN is a JSON Lines file of unmarked text with id, domain, lang and text; none comes with the package.
bench-detect: .venv/.dev
	$(BIN)/python benchmarks/corpus.py --sampling multinomial
	$(BIN)/python benchmarks/detect_speed.py
	$(BIN)/python benchmarks/level.py $(HUMAN)
	$(BIN)/python benchmarks/baselines.py $(HUMAN)
	$(BIN)/python benchmarks/robustness.py runs/multinomial-marked.jsonl runs/multinomial-unmarked.jsonl --human $(HUMAN)
	$(BIN)/python benchmarks/spans.py runs/multinomial-marked.jsonl $(HUMAN)

# DATA is required; HELDOUT, CONFIG, OUT, SECONDS and MORE (further options) are understood. Run again to continue.
train-storyteller train-judge: train-%: .venv/.dev
	$(if $(DATA),,$(error give DATA=documents.jsonl.xz, see training/README.md))
	$(BIN)/python -m training.$* --data $(DATA) --out $(or $(OUT),runs/$*) $(if $(HELDOUT),--heldout $(HELDOUT)) \
		$(if $(CONFIG),--config $(CONFIG)) $(if $(SECONDS),--max-seconds $(SECONDS)) $(MORE)

# The shipped storyteller from the data alone: four stages, each of which goes on where it stopped.
STAGES := $(or $(OUT),runs/shipped)
train-shipped:
	$(if $(SECONDS),$(error the stages follow each other: interrupt and run again instead of SECONDS))
	$(MAKE) train-storyteller OUT=$(STAGES)/1 CONFIG=training/storyteller-cpu.toml
	$(MAKE) train-storyteller OUT=$(STAGES)/2 CONFIG=training/storyteller-continued.toml MORE="--init $(STAGES)/1/model"
	$(MAKE) train-storyteller OUT=$(STAGES)/3 CONFIG=training/storyteller-tales.toml MORE="--init $(STAGES)/2/model"
	$(MAKE) train-storyteller OUT=$(STAGES)/4 CONFIG=training/storyteller-packed.toml MORE="--init $(STAGES)/3/model"

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "dgmark needs Python 3.11 or newer; set PYTHON")'
	$(PYTHON) -m venv .venv
	touch $@

.venv/.generate: pyproject.toml constraints.txt | .venv/.python
	$(INSTALL) --editable '.[generate]'
	touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/.python
	$(INSTALL) --editable '.[dev]'
	touch $@
