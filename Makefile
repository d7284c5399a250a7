# What a developer and CI call. `make demo` is the place to start; CONTRIBUTING.md says more.

GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
REVISION    ?= $(shell git describe --always --abbrev=12 --exclude='*' --dirty=+ 2>/dev/null)
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
TESTFLAGS   ?=
TIMEOUT     ?= 12m
# How long make proof goes on: at least 2,000,000 checked reads and 100,000 writes are wanted.
PROOF       ?= 10m
FUZZTIME    ?= 30s
BENCH       ?= .
BENCHTIME   ?= 100ms
SIDE        ?=
COST        ?=
MOVE        ?=
OVERLOAD    ?=
ARGS        ?=

.PHONY: build demo test vet lint fmt-check bench proof fuzz clean

build: ## bin/ringside, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.released=$(VERSION) -X main.revision=$(REVISION)' -o bin/ringside ./cmd/ringside

demo: ## everything for real on 127.0.0.1, until interrupted; ARGS='--caches 5' and so on
	@scripts/setup
	@$(MAKE) --no-print-directory build
	@exec bin/ringside demo $(ARGS)

test: ## all tests, most of them with the race detector; TESTFLAGS='-run X' and so on
	@scripts/setup race clients bench metrics page
	@GO='$(GO)' TIMEOUT='$(TIMEOUT)' scripts/test $(TESTFLAGS)

vet: # both systems: what the other one builds must compile here too
	GOOS=linux $(GO) vet ./...
	GOOS=darwin $(GO) vet ./...
	$(GO) vet -tags failpoint ./...
	$(GO) -C examples/lint vet ./...

lint: fmt-check vet
	$(GO) run $(STATICCHECK) ./...
	@if command -v shellcheck >/dev/null; then shellcheck scripts/* .ci/run examples/*/*.sh; else echo 'lint: shellcheck is not installed; the scripts were not checked'; fi

fmt-check:
	@unformatted="$$(gofmt -l .)"; if [ -n "$$unformatted" ]; then echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; fi

bench: ## BENCH='Lookup' chooses; then ringside beside twemproxy, SIDE='--only get1 --rounds 9', beside PostgreSQL, COST='--only herd'; what a move costs, MOVE='--rounds 3'; 40 sidecars that are asked for too much, OVERLOAD='--rounds 1'
	@scripts/setup bench
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem $(TESTFLAGS) ./...
	$(GO) run ./loadtest/sidebyside $(SIDE)
	$(GO) run ./loadtest/rowcost $(COST)
	$(GO) run ./loadtest/movecost $(MOVE)
	$(GO) run ./loadtest/overload $(OVERLOAD)

proof: ## PROOF=10m of reads and writes of rows while everything fails, with every reply checked; RINGSIDE_SEED=1 repeats a schedule
	@scripts/setup
	RINGSIDE_PROOF=$(PROOF) $(GO) test -count=1 -timeout 0 -v -run '^TestProof$$' ./systemtest

fuzz: ## every fuzz target, FUZZTIME each
	@scripts/setup
	@scripts/fuzz $(FUZZTIME)

clean:
	rm -rf bin
