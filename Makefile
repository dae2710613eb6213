# Everything installs itself into .venv; Python 3.11 or later, pip and make are enough.
#
#   make demo      translate with the small models that come along, also TEXT="a sentence of yours"
#   make compare   train and compare two small models on the built-in corpus
#   make test      linter, types and the tests that take seconds
#   make test-all  all tests, the long ones too: every write broken, torchrun, whole runs
#   make test-page the page's tests alone, in the Chromium of this machine (skipped without one)
#   make page      a page in the browser, and the API, with the small models that come along
#   make report    the paper's tables and figures, from the results that are stored here
#   make docs      the documentation as a site with a search box: site/index.html
#   make wheel     the wheel and the source archive, checked: dist/

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# "compat": else a checkout called scones would hide the package from scripts that lie beside it.
EDITABLE := --config-settings editable_mode=compat --editable

export PYTHONDONTWRITEBYTECODE ?= 1

.PHONY: demo page compare report docs test test-all test-page lint types pytest pytest-all bench wheel clean

demo: $(VENV)/.installed
	$(BIN)/python recipes/pocket/demo.py "$(TEXT)"

page: $(VENV)/.installed-serve
	$(BIN)/scones serve

compare: $(VENV)/.installed
	PATH="$(CURDIR)/$(BIN):$$PATH" bash recipes/compare.sh

report: $(VENV)/.installed-replication
	$(BIN)/python -m replication report docs/results/paper docs/report

docs: $(VENV)/.installed-docs
	$(BIN)/python tools/docs.py

test: lint types pytest

test-all: lint types pytest-all

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

pytest: $(VENV)/.installed-dev
	$(BIN)/pytest -m "not slow"

pytest-all: $(addprefix $(VENV)/.installed-,dev replication docs serve-dev ray)
	$(BIN)/pytest

test-page: $(addprefix $(VENV)/.installed-,dev serve-dev)
	$(BIN)/pytest tests/page

# What this machine can measure. Real text is read from the folder named by SCONES_DATA
# (docs/data.md); what needs a store or a trained model runs where there is one.
BENCH_STORE ?= data/europarl
BENCH_MODEL ?= runs/tatoeba
BENCH_IBM3 ?= data/msdocs.ibm3
BENCH_IBM3_STORE ?= data/msdocs

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/output_layer.py
	$(BIN)/python benchmarks/cpu_head.py
	$(BIN)/python benchmarks/cpu_attention.py
	$(BIN)/python benchmarks/loss_checks.py
	test ! -d $(BENCH_STORE) || $(BIN)/python benchmarks/training.py $(BENCH_STORE)
	test ! -d $(BENCH_STORE) || $(BIN)/python benchmarks/quality.py $(BENCH_STORE)
	test ! -d $(BENCH_MODEL) || $(BIN)/python benchmarks/decoding.py --scones $(BENCH_MODEL)
	test -z "$$SCONES_DATA" || $(BIN)/python benchmarks/cpu.py
	$(BIN)/python benchmarks/exact.py --toy
	$(BIN)/python benchmarks/ibm3_fit.py
	test ! -d $(BENCH_IBM3) || $(BIN)/python benchmarks/ibm3_sampling.py \
		--model $(BENCH_IBM3) --store $(BENCH_IBM3_STORE)
	$(BIN)/python benchmarks/language_identification.py
	$(BIN)/python benchmarks/prepare.py
	$(BIN)/python benchmarks/bulk.py

wheel: $(VENV)/.installed-release
	rm -rf build dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf $(VENV) build dist site *.egg-info

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/pip pyproject.toml constraints.txt
	@echo "Installing scones into $(VENV) …"
	$(PIP) torch
	$(PIP) $(EDITABLE) .
	touch $@

$(VENV)/.installed-%: $(VENV)/.installed
	@echo "Installing scones[$*] into $(VENV) …"
	$(PIP) $(EDITABLE) '.[$*]'
	touch $@
