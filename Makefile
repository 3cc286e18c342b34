# Everything is installed into .venv; all it takes is Python 3.11 or later.
PYTHON ?= python3
VENV := .venv
ENGINES := .venv-vllm
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4
EXAMPLES := hermes qwen3 mistral step-audio-2 glm-4-voice
COMMA := ,
HOST ?= 127.0.0.1
PORT ?= 8000
SECONDS ?= 30
OUT ?= build/site
# Whisper's files are on npm: without it, the server does not transcribe.
NPM := $(shell command -v npm)
SERVER := $(if $(NPM),.[server$(COMMA)speech],.[server])
LISTENS := $(if $(NPM),--transcription-model whisper-base)
# A server with a model that transcribes has no other one unless it is named. Whether it is, the settings know.
WRITES = import argparse; from unbraid.models import DEFAULT; from unbraid.server.settings_sources import add_flags, read_settings; \
	flags = argparse.ArgumentParser(add_help=False); add_flags(flags); \
	print("" if read_settings(flags.parse_known_args()[0]).each_model() else f"--model {DEFAULT}")

.DEFAULT_GOAL := help
.PHONY: run site examples docs release scoreboard test test-system test-failed test-long test-engines test-peers test-trainers fuzz soak lint bench clean help

run: $(VENV)/.server ## Serve a small model on http://127.0.0.1:8000/v1 (PORT=9000 for another; ARGS="--model …")
	@writes=$$($(BIN)/python -c '$(WRITES)' $(LISTENS) $(ARGS) 2> /dev/null); \
		exec $(BIN)/unbraid serve --host $(HOST) --port $(PORT) $(LISTENS) $$writes $(ARGS)

site: $(VENV)/.server ## Build the playground as a static site, with the parser in the browser (OUT=build/site)
	@$(BIN)/python -m unbraid.server.playground.site $(OUT)

examples: $(VENV)/.package ## Show recorded outputs taken apart
	@for name in $(EXAMPLES); do \
		command="unbraid parse --format $$name --tools examples/tools.json examples/$$name.txt"; \
		printf '\n$$ %s\n' "$$command"; \
		$(BIN)/$$command || exit; \
	done

docs: $(VENV)/.package $(VENV)/.server $(VENV)/.docs ## Build the documentation's site into build/docs (`make docs && open build/docs/index.html`)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open build/docs/index.html"

release: $(VENV)/.package $(VENV)/.server $(VENV)/.docs ## Build wheel, sdist, site, image and checksums into dist, and try each outside of the checkout
	$(PIP) 'hatchling>=1.21'
	$(BIN)/python scripts/release.py

test: lint ## Run the linters and the tests of the code (some fifteen minutes on two slow cores)
	$(PYTEST) --dist worksteal

test-system: $(VENV)/.package $(VENV)/.test ## Run the tests of the whole: clients, coding agents, a browser, Ray, speech, servers of their own
	$(PYTEST) --dist loadfile --no-loadscope-reorder -m 'system and not slow'

test-failed: lint ## Run what failed in the last run once more, one test at a time
	$(BIN)/python -m pytest -m '' --last-failed --last-failed-no-failures none

test-long: lint ## Run the tests with many more random examples, new ones each time, and the slow ones
	HYPOTHESIS_PROFILE=long $(PYTEST) --dist worksteal -m ''

test-engines: $(ENGINES)/.made ## Run the tests that need xgrammar, vLLM and SGLang (4 GB, and minutes to install)
	$(ENGINES)/bin/python -m pytest -m 'not slow' tests/constraints tests/engines/test_vllm.py tests/engines/test_vllm_replicas.py \
		tests/clients/test_vllm_clients.py tests/ray/test_vllm_local.py tests/plugins tests/speech/engines tests/docs \
		tests/verify/test_real_servers.py

test-peers: $(ENGINES)/.made ## Run vLLM's own tests with its parsers and with ours (SGLang's too: UNBRAID_SGLANG_SOURCE=checkout)
	$(ENGINES)/bin/python tests/peers/run.py

test-trainers: $(VENV)/.package $(VENV)/.test ## Run TRL, verl, renderers and verifiers with unbraid inside (6 GB; TRAINERS="trl_grpo" for some)
	$(BIN)/python -m tests.rollouts.trainers .venv-trainers $(TRAINERS)

scoreboard: $(VENV)/.package $(VENV)/.test ## Run everybody's parsers on the same streams (installs 5 GB; FULL=1 for twenty times as many)
	$(BIN)/python -m scoreboard install
	$(BIN)/python -m scoreboard $(if $(FULL),--full)
	$(BIN)/python -m scoreboard constraints

fuzz: $(VENV)/.package $(VENV)/.test $(VENV)/.atheris ## Look for inputs that break a law or the server (SECONDS=60 for each target; TARGETS="text api")
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(TARGETS)

soak: $(VENV)/.package $(VENV)/.test ## 1,000 streams for ten minutes while replicas are killed (ARGS="--streams 100 --seconds 60")
	$(BIN)/python -m tests.soak.run $(ARGS)

lint: $(VENV)/.package $(VENV)/.test ## Run the linters
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.package $(VENV)/.test ## Measure speed
	$(BIN)/python bench/parse.py
	$(BIN)/python bench/linear.py
	$(BIN)/python bench/constrain.py
	$(BIN)/python bench/serve.py
	$(BIN)/python bench/derender.py
	$(BIN)/python bench/transcribe.py

clean: ## Remove .venv and what the tools left behind
	rm -rf $(VENV) $(ENGINES) .venv-trainers .venv-scoreboard build dist .fuzz .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find unbraid tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Each of these files says that a step is done, so that the next run can leave it out.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "unbraid needs Python 3.11 or later, and $(PYTHON) is not that: make PYTHON=/path/to/python3.11 …" >&2; \
		exit 1; \
	}
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.package: $(VENV)/.made pyproject.toml
	$(PIP) --editable .
	@touch $@

$(VENV)/.server: $(VENV)/.package
	$(PIP) --editable '$(SERVER)'
	@touch $@

$(VENV)/.test: $(VENV)/.made requirements/test.txt
	$(PIP) --requirement requirements/test.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.made requirements/docs.txt
	$(PIP) --requirement requirements/docs.txt
	@touch $@

# Where it cannot be built, `make fuzz` does without, and says so.
$(VENV)/.atheris: $(VENV)/.made requirements/atheris.txt
	@$(PIP) --requirement requirements/atheris.txt 2>/dev/null && touch $@ || true

$(ENGINES)/.made: scripts/install-vllm requirements/vllm.txt requirements/test.txt pyproject.toml
	$(PYTHON) scripts/install-vllm $(ENGINES)
	@touch $@
