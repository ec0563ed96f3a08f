# Every target does its own set-up in .venv: a fresh machine needs Python 3.11 or newer, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ROOT_FLAG := $(shell [ "$$(id -u)" = 0 ] && echo --allow-root)
# Two test workers on two cores: one thread each, or they fight over the cores.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: lab demo test test-all lint notebooks models train train-smollm2 bench bench-widgets clean FORCE

lab: $(READY)
	$(BIN)/jupyter lab $(ROOT_FLAG) --ServerApp.root_dir="$(CURDIR)" $(LAB_ARGS) notebooks/00_start_here.ipynb

demo: $(READY)
	$(BIN)/specdec demo $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

test: lint
	$(BIN)/python notebooks/build.py --check
	$(ONE_THREAD) $(BIN)/pytest -q -rs -n 2 --dist loadscope -m "not slow" tests
	$(ONE_THREAD) $(BIN)/pytest -q -n 2 --dist loadscope --nbval --nbval-current-env --nbval-cell-timeout=120 notebooks

test-all: lint
	$(BIN)/python notebooks/build.py --check
	$(ONE_THREAD) $(BIN)/pytest -q -rs -n 2 --dist loadscope tests
	$(ONE_THREAD) $(BIN)/pytest -q -n 2 --dist loadscope --nbval --nbval-current-env --nbval-cell-timeout=120 notebooks

notebooks: $(READY)
	$(BIN)/python notebooks/build.py $(ARGS)

models: $(READY)
	$(BIN)/specdec models

train: $(READY)
	$(BIN)/python -m specdec_core.storyworld.train $(ARGS)

train-smollm2: models
	$(BIN)/python -m specdec_core.smollm2_draft.train $(ARGS)

bench-widgets: $(READY)
	$(BIN)/python tests/browser/measure.py $(ARGS)

bench: $(READY)
	$(BIN)/specdec bench $(ARGS)

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache

# A change of these files installs again into the same environment. A virtual environment holds
# absolute paths: one that came along with a moved clone, or whose Python is gone, is made anew.
$(READY): pyproject.toml constraints.txt $(shell find notebooks/jupyter -name '*.json')
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "This project needs Python 3.11 or newer, and $(PYTHON) is not: install one, then run make PYTHON=python3.12."; exit 1; }
	@echo "Setting up .venv (the first time this takes a few minutes) ..."
	@$(PYTHON) -m venv $(CLEAR) $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@echo "$(CURDIR)" > $@

ifneq ($(wildcard $(READY)),)
ifneq ($(shell cat $(READY) && $(BIN)/python -c '' 2>/dev/null && echo works),$(CURDIR) works)
CLEAR := --clear
$(READY): FORCE
endif
endif
FORCE:
