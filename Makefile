# Each target is a script in tests/tools/, which can be run by itself.
.DEFAULT_GOAL := help
.PHONY: help setup lint unit molecule shipped test-real test demo clean distclean
T := tests/tools

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## make what the tests need: packages, .venv, wheels, test-host image
	@$(T)/setup

lint: ## yamllint, ansible-lint, ruff, mypy
	@$(T)/lint

unit: ## tests without hosts; ARGS="-k name"
	@$(T)/unit $(ARGS)

molecule: ## tests on hosts; SCENARIO=default for one, KEEP=1 keeps its hosts
	@$(T)/molecule $(SCENARIO)

shipped: ## the demo with the collection as users install it, and the oldest ansible-core
	@$(T)/shipped

test: ## everything: setup, lint, unit, molecule, shipped
	@$(T)/all

test-real: setup ## tests on hosts with the real sglang; VERSION=0.5.16, KEEP=1
	@$(T)/real $(VERSION)

demo: setup ## a cluster of stand-in engines to look at
	@$(T)/with-env tests/demo/run

clean: ## remove hosts, logs and caches of the tests
	@$(T)/clean

distclean: ## remove also .venv, wheels and the test-host image
	@$(T)/clean --all
