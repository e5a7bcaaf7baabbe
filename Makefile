# Everything a person or a machine does with this repository. `make` alone prints the list.
# Needs Python 3.11+ with pip (or uv), and make; the environment in .venv is made on first use.

SHELL := /bin/sh
PYTHON := $(shell for each in $(PYTHON) python3 python3.13 python3.12 python3.11 python; do \
	"$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$each"; break; }; done)
RUN = $(if $(PYTHON),$(PYTHON),$(error Python 3.11 or later is needed: install it, or name it with make PYTHON=/path/to/python3)) \
	runtime/bootstrap/environment.py
# Tests run in this many processes, each file as a whole in one of them (not --dist loadgroup: xdist 3.8 does not group under pytest 9.2).
# Three for two cores: tests of storage and of processes wait for a third of their time.
WORKERS := 3
SOURCES := runtime operator examples bench e2e docs
PATHS = $(wildcard $(SOURCES))

.DEFAULT_GOAL := help
.PHONY: help demo demo-kafka bench soak env emulators test test-all e2e e2e-all e2e-report lint unit format crds pyflink docs versity dist lock sbom clean

##@ For everyone
help: ## print this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## 336,776 real flights through a stateful job: an executor killed, rescaled 2 to 3, proved against pandas
	@$(RUN) python examples/01-flights/demo.py

demo-kafka: ## the same flights from one Kafka topic to another: executor and broker killed, proved for a read_committed consumer
	@$(RUN) python examples/01-flights/kafka_demo.py

bench: ## measure speed side by side with Spark's own state (minutes)
	@$(RUN) python bench/run.py

soak: ## prove that slots keep to their managed memory: 20 GiB written with 64 MiB, 128 MiB and 1 GiB (about half an hour)
	@$(RUN) python bench/run.py memory_soak

##@ For developers
env: ## make or update .venv from the lock files
	@$(RUN)

PROFILE := ci
PYTEST = HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-$(PROFILE)} $(RUN) pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: lint ## lint, types, import layers, and the tests (what .ci/run does)
	@$(PYTEST) -m "not exhaustive" --ignore=runtime/tests/docs --durations=40

emulators: ## install the servers on which gs://, abfss:// and hdfs:// are tested into out/emulators (go, npm, mvn; minutes)
	@$(RUN) python runtime/tests/storage/emulators.py

test-all: PROFILE := all
test-all: lint emulators ## the same with the slow cases that a quicker test covers already
	@$(PYTEST) --ignore=runtime/tests/docs --durations=40

e2e: ## every promise on a real cluster: kind, KUBECONFIG, or the script of STATEFULSPARK_TEST_CLUSTER (e2e/README.md)
	@$(RUN) python -m e2e $(ARGS)

e2e-all: ## the same with those tests that CI has no time for
	@$(RUN) python -m e2e --all

e2e-report: ## write what `make e2e` measured to docs/benchmarks.md
	@$(RUN) python -m e2e.report

lint: ## ruff, mypy --strict, import-linter, vulture, and the vocabulary of the documentation
	@$(RUN) ruff check $(PATHS)
	@$(RUN) ruff format --check $(PATHS)
	@$(RUN) mypy
	@$(RUN) lint-imports
	@$(RUN) vulture
	@$(RUN) pytest -q runtime/tests/docs

unit: ## only the quick tests
	@$(RUN) pytest -m "not slow and not cluster and not kill and not exhaustive"

format: ## let ruff mend what it can
	@$(RUN) ruff check --fix $(PATHS)
	@$(RUN) ruff format $(PATHS)

crds: ## write crds/, the chart's copies and docs/crd-reference.md anew from the models
	@$(RUN) python -m statefulspark_operator.crds

pyflink: ## write the table of PyFlink's names and signatures from the release on PyPI that runtime/tests/pyflink/signatures.py pins
	@$(RUN) python runtime/tests/pyflink/signatures.py

# The pages that are generated need the project, so .venv makes them. The site's tools have an environment of their own, from their own lock.
SITE_TOOLS := out/site-tools
docs: $(SITE_TOOLS)/.made ## build the documentation as a site in out/site; a broken link or anchor is an error
	@$(RUN) python docs/site/references.py out/references
	@NO_MKDOCS_2_WARNING=1 $(SITE_TOOLS)/bin/mkdocs build --strict --config-file mkdocs.yml --site-dir out/site
	@echo "out/site/index.html"

$(SITE_TOOLS)/.made: docs/site/site.lock
	@$(RUN) python -m venv --clear $(SITE_TOOLS)
	@$(SITE_TOOLS)/bin/pip --quiet --disable-pip-version-check install --require-hashes --requirement docs/site/site.lock
	@touch $@

# A second S3 server for the tests marked "versity"; Go's checksum database guards the version.
versity: ## install Versity S3 Gateway into out/tools (needs Go, some minutes) and run the tests that use it
	@GOBIN=$(CURDIR)/out/tools go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	@$(PYTEST) -m versity runtime/tests/storage runtime/tests/integration

dist: ## build the wheel and the source distribution in dist/ with the locked build backend
	@rm -rf dist
	@$(RUN) python -m hatchling build -d dist

lock: ## write the lock files anew (needs uv)
	uv lock
	uv export --quiet --frozen --no-header --format requirements-txt --extra demo --extra operator --extra gcs --extra azure --extra hdfs --extra kafka --group dev --no-emit-project -o requirements.lock
	uv export --quiet --frozen --no-header --format requirements-txt --only-group java -o runtime/bootstrap/java.lock
	uv export --quiet --frozen --no-header --format requirements-txt --no-dev --extra gcs --extra azure --extra hdfs --extra kafka --no-emit-project -o images/job.lock
	uv export --quiet --frozen --no-header --format requirements-txt --only-group operator-image -o images/operator.lock
	uv export --quiet --frozen --no-header --format requirements-txt --only-group build -o images/build.lock
	uv export --quiet --frozen --no-header --format requirements-txt --only-group store-image -o e2e/images/store/store.lock
	uv export --quiet --frozen --no-header --format requirements-txt --only-group docs -o docs/site/site.lock

# One document for each image, from its lock: what is in them is what the locks name, by hash, beside the packages of the base and of Debian.
SBOM_TOOL := cyclonedx-bom==7.5.0
sbom: ## write the bill of materials of each image's Python packages to out/sbom (CycloneDX; installs its tool into out/)
	@$(RUN) python -m venv out/sbom-tool
	@out/sbom-tool/bin/pip --quiet --disable-pip-version-check install $(SBOM_TOOL)
	@mkdir -p out/sbom
	@for image in job operator; do \
		PYTHONWARNINGS=ignore out/sbom-tool/bin/cyclonedx-py requirements images/$$image.lock --pyproject pyproject.toml --output-reproducible \
			--output-format JSON --output-file out/sbom/$$image.cdx.json || exit 1; \
		echo "out/sbom/$$image.cdx.json"; done

clean: ## remove what was made, except .venv
	rm -rf out build dist artifacts metastore_db spark-warehouse derby.log .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
