# Everything that is done with this repository. `make help` lists it.
# All set-up happens by itself, into .venv, bin and build; see scripts/setup.sh.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.SUFFIXES:

PYTHON ?= python3
VENV := .venv/bin/python
STATICCHECK_VERSION := v0.8.2
STATICCHECK := bin/tools/staticcheck-$(STATICCHECK_VERSION)
FUZZTIME ?= 30s
# What test-go and test-race test, and what else pytest is told: make test-go PACKAGES=./pack, make test-python PYTEST='-k step'
PACKAGES ?= ./...
PYTEST ?=
# Packages that the race detector need not watch, since they start no goroutine (held by internal/lint): it takes minutes
# for their tests.
NORACE := cmd/stoker internal/cdec internal/imagefile internal/lint internal/sampler
# Packages that use memory which is given back (internal/invariants).
INVARIANTS := . ./internal/invariants ./internal/arena ./internal/fetch ./internal/pipeline ./internal/handoff
# Packages whose C code the sanitizers watch.
ASAN := ./internal/cdec/... ./internal/csound/... ./internal/audio/... ./internal/decode/...
export NO_MKDOCS_2_WARNING := 1
export PYTHON PACKAGES PYTEST LOAD
export STOKER_BINARY := $(CURDIR)/bin/stoker
# As python/setup.py builds the wheel's binary, so that nothing is compiled twice, and tests are of what is shipped. The
# checkout may belong to another user, as in containers: git is not asked from inside of go build.
TAGS := netgo,osusergo
BUILDFLAGS := -buildvcs=false -trimpath -tags=$(TAGS)
export GOFLAGS := $(BUILDFLAGS) $(filter-out $(BUILDFLAGS),$(GOFLAGS))
# What make test runs; scripts/repeat.sh reads it as well.
TESTS := test-python test-race test-invariants test-asan test-fuzz test-go
VERSION := $(shell git -c safe.directory='*' describe --tags --always --dirty 2>/dev/null)
LDFLAGS := $(if $(VERSION),-X github.com/stokerdata/stoker/internal/cli.release=$(VERSION))

.PHONY: help
help: ## list what can be done here
	@echo 'make ...'
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

# --- build -------------------------------------------------------------------

.PHONY: system
system:
	@scripts/setup.sh system

.PHONY: build
build: system ## build bin/stoker
	@[ -x bin/stoker ] || echo 'build: compiling bin/stoker (about a minute the first time)'
	@go build -ldflags '$(LDFLAGS)' -o bin/stoker ./cmd/stoker 2> >(grep -v '^go: downloading' >&2)

# The environment grows in three steps; each stamp stands for the files that it was made from.
build/venv-demo: scripts/requirements-demo.txt scripts/setup.sh | system
	@scripts/setup.sh python scripts/requirements-demo.txt
	@touch $@

build/venv-dev: scripts/requirements-dev.txt build/venv-demo
	@scripts/setup.sh python scripts/requirements-dev.txt
	@touch $@

build/venv-test: python/requirements-test.txt build/venv-dev
	@echo 'setup: PyTorch and the other readers that tests compare with (several GB, once)'
	@scripts/setup.sh python python/requirements-test.txt
	@touch $@

# --- use ---------------------------------------------------------------------

.PHONY: demo
demo: build build/venv-demo ## feed a small training loop; DATA=folder uses your own data, KIND=audio another kind of it
	@[ -f scripts/demo$(if $(KIND),_$(KIND)).py ] || { echo "demo: KIND=$(KIND) is not one of $$(ls scripts/demo_*.py | sed 's/.*demo_//; s/\.py//' | paste -sd, -)"; exit 2; }
	@$(VENV) scripts/demo$(if $(KIND),_$(KIND)).py $(if $(DATA),--data '$(DATA)')

.PHONY: bench
bench: build build/venv-test ## measure against other loaders; QUICK=1 takes 5 minutes; SUITES=remote: data that lies elsewhere
ifeq ($(SUITES),remote)
	@bench/setup.sh side mds remote
	@$(VENV) -m bench.remote $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(DATA),--data '$(DATA)')
	@$(VENV) -m bench.remote --report
else
	@$(if $(QUICK),true,bench/setup.sh)
	@$(VENV) -m bench.run $(if $(QUICK),--quick) $(if $(SUITES),--suites $(SUITES)) $(if $(STEPS),--steps $(STEPS)) \
		$(if $(ARMS),--arms '$(ARMS)') $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS_PER_ARM),--seconds $(SECONDS_PER_ARM)) \
		$(if $(DATA),--data '$(DATA)') $(if $(RESUME),--resume)
	@$(if $(QUICK),true,$(VENV) -m bench.report)
endif

.PHONY: bench-against
bench-against: build build/venv-test ## this checkout beside BASE=commit, in turns: is anything slower? 15 minutes; FORMATS=. measures every format instead
	@$(VENV) -m bench.against '$(BASE)' $(if $(SUITES),--suites $(SUITES)) $(if $(ARMS),--arms '$(ARMS)') $(if $(FORMATS),--formats '$(FORMATS)') \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS_PER_ARM),--seconds $(SECONDS_PER_ARM)) $(if $(DATA),--data '$(DATA)')

.PHONY: bench-latency
bench-latency: build build/venv-test ## storage that answers late, beside the same pack in memory; 8 minutes
	@$(VENV) -m bench.latency $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(LOOKAHEAD),--lookahead '$(LOOKAHEAD)') $(if $(DATA),--data '$(DATA)')

.PHONY: bench-cache
bench-cache: build build/venv-test ## a folder that learns, beside itself without a cache and packs of it; 5 minutes
	@$(VENV) -m bench.learn $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(DATA),--data '$(DATA)')
	@$(VENV) -m bench.learn --report

.PHONY: bench-order
bench-order: build build/venv-test ## how well orders shuffle for their memory, beside other loaders; writes docs/internals/shuffle-quality.md, 10 minutes
	@bench/setup.sh mds side
	@$(VENV) -m bench.order $(if $(SEEDS),--seeds $(SEEDS)) $(if $(ONLY),--only '$(ONLY)')

.PHONY: formats
formats: ## lists of formats in README.md and docs/reference/formats.md, from the formats
	@$(GO) test ./internal/cli -run TestFormatLists -update

.PHONY: bench-formats
bench-formats: build build/venv-test ## each format read as it is, beside its own library; ONLY='hdf5|zarr', 15 minutes
	@bench/setup.sh tf mds side robots ffcv
	@$(VENV) -m bench.formats $(if $(ONLY),--only '$(ONLY)') $(if $(ROUNDS),--rounds $(ROUNDS))
	@$(VENV) -m bench.formats --report

.PHONY: reliability
reliability: build build/venv-test ## public test files compared with their reference libraries; writes docs/internals/reliability.md, 10 minutes
	@$(VENV) -m bench.reliability --collections '$(or $(COLLECTIONS),bench/work/collections)' --fetch

.PHONY: bench-writers
bench-writers: build build/venv-test ## packing and converting, beside the writers of other formats; 5 minutes
	@bench/setup.sh mds side ffcv
	@$(VENV) -m bench.writers $(if $(ROUNDS),--rounds $(ROUNDS))
	@$(VENV) -m bench.writers --report

.PHONY: bench-run
bench-run: build build/venv-test ## public training scripts under `stoker run`; ONLY=regex CHECKOUTS=clones ROUNDS=1, 40 minutes
	@bench/setup.sh public
	@$(VENV) -m bench.takeover $(if $(ONLY),--only '$(ONLY)') $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(CHECKOUTS),--checkouts '$(CHECKOUTS)')
	@$(VENV) -m bench.takeover --report

.PHONY: bench-gpu
bench-gpu: build build/venv-test ## batches on an accelerator, beside pinned copies, PyTorch and DALI; says so where there is none
	@$(VENV) -m bench.gpu $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(DATA),--data '$(DATA)')

.PHONY: bench-storage
bench-storage: build build/venv-test ## accelerators fed, beside DLIO's PyTorch loader; 20 minutes, 9 GB of data
	@bench/dlio_setup.sh
	@$(VENV) -m bench.dlio $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(WORKLOADS),--workloads '$(WORKLOADS)') $(if $(RESUME),--resume)
	@$(VENV) -m bench.dlio --report

.PHONY: bench-whatif
bench-whatif: build build/venv-test ## is the what-if of stoker bench right? 4 minutes
	@$(VENV) -m bench.whatif $(if $(ROUNDS),--rounds $(ROUNDS))

.PHONY: bench-doctor
bench-doctor: build build/venv-test ## is stoker doctor right? An hour; SET=tuning|heldout ONLY=text RESUME=1
	@bench/setup.sh side
	@$(VENV) -m bench.doctor.run $(if $(SET),--set $(SET)) $(if $(ONLY),--only '$(ONLY)') $(if $(RESUME),--resume) \
		$(if $(DATA),--data '$(DATA)') || [ $$? = 1 ]
	@$(VENV) -m bench.doctor.report
	@$(if $(SET)$(ONLY),true,$(VENV) -m bench.doctor.transcript $(if $(DATA),--data '$(DATA)'))

.PHONY: bench-doctor-kinds
bench-doctor-kinds: build build/venv-test ## stoker doctor beside TraceML and rules on jobs of many kinds, its advice tried; 90 minutes, a quiet machine; PARTS=truth,verdicts,traceml,verify ONLY=names RUNS=60 BUDGET=seconds SECONDS_EACH=10 RESUME=1 TRUTHS=results
	@bench/setup.sh tf grain ray traceml
	@$(VENV) -m bench.doctor.beside $(if $(PARTS),--parts $(PARTS)) $(if $(SET),--set $(SET)) $(if $(ONLY),--only '$(ONLY)') \
		$(if $(SECONDS_EACH),--seconds $(SECONDS_EACH)) $(if $(RUNS),--runs $(RUNS)) $(if $(BUDGET),--budget $(BUDGET)) $(if $(RESUME),--resume) $(if $(TRUTHS),--truths '$(TRUTHS)')

.PHONY: bench-planner
bench-planner: build build/venv-test ## does the planner predict right? 9 minutes; RESUME=1 ROUNDS=3
	@$(VENV) -m bench.planner $(if $(RESUME),--resume) $(if $(ROUNDS),--rounds $(ROUNDS))

.PHONY: wheel
wheel: build build/venv-dev ## build the self-contained Python wheel into dist/
	@cd python && ../$(VENV) -m build --wheel --no-isolation --outdir ../dist .

# --- documentation -----------------------------------------------------------

build/venv-docs/done: scripts/requirements-docs.txt
	@echo 'setup: the environment of the documentation site'
	@$(PYTHON) -m venv build/venv-docs && build/venv-docs/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.PHONY: docs
docs: build/venv-docs/done ## build the documentation site into build/site; a broken link is an error
	@build/venv-docs/bin/mkdocs build --quiet
	@echo "docs: build/site/index.html, $$(find build/site -name '*.html' | wc -l) pages, all links lead somewhere"

.PHONY: docs-serve
docs-serve: build/venv-docs/done ## show the documentation site on http://127.0.0.1:8000
	@build/venv-docs/bin/mkdocs serve --quiet

# --- check -------------------------------------------------------------------

# The check cgocall opens the sources by the path that the build cache holds. With -trimpath that path may be of another
# checkout, which may be gone. So this check runs without -trimpath, for the packages that pass Go values to C.
.PHONY: lint
lint: build build/venv-dev $(STATICCHECK) ## formatting, vet, static analysis and import rules
	@echo 'lint: Go'
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "lint: gofmt would change: $$bad"; exit 1; }
	@go vet -cgocall=false ./...
	@go vet -cgocall=false -tags invariants,$(TAGS) $(INVARIANTS)
	@go vet -trimpath=false -cgocall ./internal/cdec ./internal/csound ./internal/dynlib ./internal/imagelib ./internal/videodec
	@$(STATICCHECK) ./...
	@go test -count=1 ./internal/lint
	@echo 'lint: C'
	@for f in $$(git ls-files 'internal/*.c'); do \
		$${CC:-gcc} -std=gnu11 -O2 -Wall -Wextra -Werror -fsyntax-only $$f || exit 1; done
	@echo 'lint: Python'
	@.venv/bin/ruff check --quiet scripts bench examples
	@cd python && ../.venv/bin/ruff check --quiet
	@cd python && ../.venv/bin/mypy --no-error-summary

$(STATICCHECK): | system
	@echo 'setup: staticcheck'
	@mkdir -p bin/tools
	@GOBIN=$(CURDIR)/bin/tools go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)
	@mv bin/tools/staticcheck $@

# Servers of objects that tests of buckets speak to. Where they cannot be built those tests are skipped and say so.
.PHONY: servers web
servers: web bin/tools/versitygw bin/tools/minio $(if $(shell command -v npm),bin/tools/azurite/node_modules/azurite)

web: | system
	@scripts/setup.sh web

bin/tools/versitygw: scripts/servers/go.mod scripts/servers/go.sum | system
	@echo 'setup: servers of objects for tests (two minutes, once)'
	@mkdir -p bin/tools
	@cd scripts/servers && go build -o ../../bin/tools/ tool || echo 'setup: they cannot be built: tests of buckets are skipped'
	@touch -c $@ bin/tools/fake-gcs-server

# A second opinion on S3. It is a program under the AGPL that tests start, and no part of anything here.
MINIO := v0.0.0-20260212201848-7aac2a2c5b7c
bin/tools/minio: | system
	@echo 'setup: a second server of S3 (two minutes, once)'
	@mkdir -p bin/tools
	@GOBIN=$(CURDIR)/bin/tools go install github.com/minio/minio@$(MINIO) || echo 'setup: MinIO cannot be built: its tests are skipped'

bin/tools/azurite/node_modules/azurite: scripts/servers/package.json
	@mkdir -p bin/tools/azurite
	@cp $< bin/tools/azurite/
	@npm install --silent --no-audit --no-fund --prefix bin/tools/azurite >/dev/null || echo 'setup: azurite cannot be installed: tests of az:// are skipped'
	@touch -c $@

# Python's tests wait a lot, for processes that start and end, and Go's use what cores there are: the two run beside each
# other, and so does what has to be installed for Python's.
.PHONY: test
test: ## all tests
	@$(MAKE) --no-print-directory -j2 BESIDE=1 $(TESTS)

ifdef BESIDE
test-invariants: | test-race
test-asan: | test-invariants
test-fuzz: | test-asan
test-go: | test-fuzz
endif

.PHONY: test-go
test-go: build build/venv-test servers
	@echo 'test: Go'
	@go test $(PACKAGES)

.PHONY: test-race
test-race: system servers
	@echo 'test: race detector'
	@go test -vet=off -race -short $$(go list $(PACKAGES) | grep -vxF $(NORACE:%=-e $$(go list -m)/%))

.PHONY: test-invariants
test-invariants: system ## memory is destroyed when it is given back, which must not show
	@echo 'test: invariants'
	@go test -vet=off -tags invariants,$(TAGS) $(INVARIANTS)

.PHONY: test-asan
test-asan: system ## the C code under the address and undefined-behaviour sanitizers
	@echo 'test: sanitizers'
	@CGO_CFLAGS='-g -O1 -fsanitize=undefined -fno-sanitize-recover=all' CGO_LDFLAGS='-fsanitize=undefined' \
		go test -vet=off -asan -short $(ASAN)

.PHONY: test-arm64
test-arm64: system ## the codec's tests for arm64, in an emulator
	@scripts/test-arm64.sh

.PHONY: test-fuzz
test-fuzz: system
	@echo 'test: a short fuzz run of every parser'
	@WORKERS=1 scripts/fuzz.sh 2s

.PHONY: test-python
test-python: build build/venv-test servers
	@echo 'test: Python'
	@scripts/python-tests.sh '$(if $(BESIDE),python: )' $(PYTEST)

.PHONY: test-repeat
test-repeat: ## all tests N=10 times, beside LOAD=4 busy processes; TARGETS='test-go' PACKAGES=./pack PYTEST='-k step'
	@scripts/repeat.sh $(or $(N),10) $(TARGETS)

.PHONY: fuzz
fuzz: system ## fuzz every parser for FUZZTIME (30s) each
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: clean
clean: ## remove what was built; .venv stays
	rm -rf bin build dist demo-data python/build python/dist python/src/stoker/bin
