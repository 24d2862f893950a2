.PHONY: run test test-all setup check lock docs tables changelog dist

KEYS ?= 4
NAME ?= divisibility

run: setup  ## Run the divisibility example on 200,000 words.
	@.venv/bin/python examples/divisibility/words.py data/divisibility/words
	@.venv/bin/penstock run examples/divisibility/app.py --keys $(KEYS) --until-idle \
		--source RawWords=text:data/divisibility/words --name $(NAME)
	@.venv/bin/python examples/divisibility/explain.py runs/$(NAME)/report.json

test: check  ## Lint, check types and imports, and run the tests that need no server: before each commit.
	@.venv/bin/python scripts/tests.py

test-all: test  ## All of that, and then the tests with Kafka, PostgreSQL, clusters and kills.
	@scripts/services
	@.venv/bin/python scripts/tests.py --servers

check: setup  ## Format, lint, types, the contract of imports, and that generated tables are up to date.
	@scripts/check

setup:
	@scripts/setup

docs: setup  ## Build the handbook: build/handbook.
	@.venv/bin/python scripts/handbook.py

tables: setup  ## Write what documents have from code anew: the tables of connectors, and the gallery.
	@.venv/bin/python scripts/tables.py
	@.venv/bin/python scripts/gallery.py

changelog: setup  ## Put the fragments of changes/ into CHANGELOG.md, at a release.
	@.venv/bin/python scripts/changelog.py

dist: setup  ## Build and check the sdist and the wheel, and use them in an empty environment: build/rehearsal/dist.
	@scripts/rehearse

lock:  ## Pin the newest versions that pyproject.toml allows.
	@.venv/bin/python -m pip install --quiet uv
	@.venv/bin/uv pip compile --quiet --universal --generate-hashes --extra dev --no-emit-index-url \
		--custom-compile-command 'make lock' pyproject.toml -o requirements.lock
