.PHONY: run test setup check lock docs

KEYS ?= 4
NAME ?= divisibility

run: setup  ## Run the divisibility example on 200,000 words.
	@.venv/bin/python examples/divisibility/words.py data/divisibility/words
	@.venv/bin/penstock run examples/divisibility/app.py --keys $(KEYS) --until-idle \
		--source RawWords=text:data/divisibility/words --name $(NAME)
	@.venv/bin/python examples/divisibility/explain.py runs/$(NAME)/report.json

test: setup  ## Lint, check types and imports, and run every test.
	@scripts/services
	@scripts/check
	@.venv/bin/python scripts/tests.py

check: setup  ## What `make test` runs before the tests.
	@scripts/check

setup:
	@scripts/setup

docs: setup  ## Build the reference from the docstrings.
	@.venv/bin/python scripts/reference.py
	@echo "Open build/reference/index.html"

lock:  ## Pin the newest versions that pyproject.toml allows.
	@.venv/bin/python -m pip install --quiet uv
	@.venv/bin/uv pip compile --quiet --universal --generate-hashes --extra dev --no-emit-index-url \
		--custom-compile-command 'make lock' pyproject.toml -o requirements.lock
