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
NORACE := cmd/stoker internal/arrowipc internal/audio internal/cdec internal/chart internal/csound internal/dtype internal/imagecodec internal/imagefile internal/inflate internal/lint internal/mask internal/proc internal/sampler
# Libraries that only compute. They are compiled without the race detector's checks, because these make each byte 5 to 15
# times slower. The detector then does not see what they read and write. A library with goroutines or with generics of
# sync/atomic must not be listed: with copies of these without checks, the detector reports races that do not exist.
UNCHECKED := compress/flate image image/color image/draw image/internal/imageutil image/jpeg image/png github.com/andybalholm/brotli \
	github.com/klauspost/compress/flate github.com/pierrec/lz4/v4/internal/lz4block github.com/ulikunitz/xz/internal/hash \
	github.com/ulikunitz/xz/lzma golang.org/x/image/tiff/lzw
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
# The version of the Python package is the only place of it. A program of a checkout also has the commit.
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' python/src/stoker/_version.py)
COMMIT := $(shell git -c safe.directory='*' describe --always --dirty --exclude='*' 2>/dev/null)
LDFLAGS := -X github.com/stokerdata/stoker/internal/cli.release=$(VERSION)$(if $(COMMIT),+$(COMMIT))

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

# Options of benchmarks, such as ROUNDS=5; make bench SUITES=list says which suite takes which.
export QUICK STEPS ARMS ROUNDS SECONDS_PER_ARM DATA RESUME ONLY LOOKAHEAD SEEDS CHECKOUTS WORKLOADS SET PARTS SECONDS_EACH RUNS BUDGET TRUTHS COLLECTIONS

.PHONY: soak-node
soak-node: build build/venv-test ## kill the engine that loaders share, KILLS=100 times with one, two and four loaders each
	@cd python && KILLS=$(or $(KILLS),100) ../$(VENV) -m pytest -q tests/test_node.py -k killed

.PHONY: bench
bench: build build/venv-test ## measure against other loaders; QUICK=1 takes 5 minutes; SUITES=list lists the other measurements
	@$(VENV) -m bench $(SUITES)

.PHONY: bench-against
bench-against: build build/venv-test ## this checkout beside BASE=commit, in turns: is anything slower? 15 minutes; FORMATS=. measures every format instead
	@$(VENV) -m bench.against '$(BASE)' $(if $(SUITES),--suites $(SUITES)) $(if $(ARMS),--arms '$(ARMS)') $(if $(FORMATS),--formats '$(FORMATS)') \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS_PER_ARM),--seconds $(SECONDS_PER_ARM)) $(if $(DATA),--data '$(DATA)')

.PHONY: formats
formats: ## lists of formats in README.md and docs/reference/formats.md, from the formats
	@go test ./internal/cli -run TestFormatLists -update

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

build/venv-release: scripts/requirements-release.txt build/venv-dev
	@scripts/setup.sh python scripts/requirements-release.txt
	@touch $@

.PHONY: surface
surface: build build/venv-dev ## Python classes and reference pages, from the descriptions of the engine
	@$(VENV) scripts/surface.py

.PHONY: release
release: build build/venv-release ## wheels, programs and Debian packages for x86_64 and arm64, checksums, contents and notes into dist/
	@$(VENV) scripts/release.py

.PHONY: release-publish
release-publish: ## what make release made, as a draft on GitHub
	@gh release create v$(VERSION) --draft --title 'Stoker $(VERSION)' --notes-file dist/RELEASE-NOTES.md dist/*

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
	@.venv/bin/clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')
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

# With all tests, these are those that the other passes leave out. Vet has its turn in make lint.
.PHONY: test-go
test-go: build build/venv-test servers
	@echo 'test: Go'
	@runs=$(if $(BESIDE),$$(scripts/plain.sh '$(NORACE)' '$(INVARIANTS)' $(PACKAGES)),'$(PACKAGES)') && rc=0 && \
		while read -r run; do [ -z "$$run" ] || go test -vet=off $$run || rc=1; done <<<"$$runs" && exit $$rc

# A program with the race detector sleeps for a second when it exits, to hear of late races. A tenth is enough: tests wait
# for the goroutines that they start.
.PHONY: test-race
test-race: system servers
	@echo 'test: race detector'
	@GORACE=atexit_sleep_ms=100 go test -vet=off -race -short -timeout 20m $(UNCHECKED:%=-gcflags=%=-race=false) $$(go list $(PACKAGES) | grep -vxF $(NORACE:%=-e $$(go list -m)/%))

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
	@WORKERS=1 scripts/fuzz.sh 400ms

.PHONY: test-python
test-python: build build/venv-test servers
	@echo 'test: Python'
	@scripts/python-tests.sh '$(if $(BESIDE),python: )' $(PYTEST)

# Schedulers and libraries that no other test needs have an environment of their own.
# PyTorch is that of the tests' environment: a path file adds it.
build/venv-cluster/done: python/requirements-cluster.txt build/venv-test
	@echo 'setup: Ray, Dask, Spark and others that only make test-cluster needs (1 GB, once)'
	@$(PYTHON) -m venv build/venv-cluster
	@.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		>"$$(build/venv-cluster/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests.pth"
	@build/venv-cluster/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.PHONY: test-cluster
test-cluster: build build/venv-cluster/done ## packing in parts and training with the real Ray, Slurm, Dask, Spark and Open MPI, whose processes are killed; manifests of Kubernetes
	@scripts/setup.sh schedulers
	@cd scripts/kubernetes && go test -count=1 ./...
	@cd python && STOKER_CLUSTER=1 ../build/venv-cluster/bin/python -m pytest -s tests/test_cluster.py tests/test_cluster_train.py tests/test_grain.py $(PYTEST)

.PHONY: test-repeat
test-repeat: ## all tests N=10 times, beside LOAD=4 busy processes; TARGETS='test-go' PACKAGES=./pack PYTEST='-k step'
	@scripts/repeat.sh $(or $(N),10) $(TARGETS)

.PHONY: histories
histories: build build/venv-test ## N=1000 random histories of kills, resumes and numbers of ranks, and as many with map= and killed engines: every batch stays the same
	@STOKER_HISTORIES=$(or $(N),1000) go test -run TestHistories -count=1 -timeout 60m .
	@cd python && STOKER_HISTORIES=$(or $(N),1000) ../$(VENV) -m pytest -q -o faulthandler_timeout=7200 tests/test_histories.py

# The short forms are in bench/tests/test_hostile.py.
.PHONY: test-hostile
test-hostile: build build/venv-test ## loaders in hostile places and under faults, an hour; ONLY=places,kills runs parts; writes docs/internals/faults.md
	@$(VENV) -m bench.hostile $(if $(ONLY),--only $(ONLY))

.PHONY: test-flight
test-flight: build build/venv-test ## feeders: 100,000 batches are compared while servers are killed 50 times
	@$(VENV) -m bench.feeders --batches 100000

.PHONY: soak
soak: build build/venv-test servers ## three jobs under random faults for MINUTES=20, each batch compared; SEED=7 repeats a run
	@$(VENV) -m bench.hostile.soak --minutes $(or $(MINUTES),20) $(if $(SEED),--seed $(SEED))

.PHONY: fuzz
fuzz: system ## fuzz every parser for FUZZTIME (30s) each
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: clean
clean: ## remove what was built; .venv stays
	rm -rf bin build dist demo-data python/build python/dist python/src/stoker/bin
