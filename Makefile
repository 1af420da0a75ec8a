# Targets for people and for continuous integration; `make help` lists them.
# Everything that is not Go, git, make and a C compiler (for -race) is built
# from Go modules, once, into a cache outside the tree.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/federator
TOOLS := $(CACHE)/tools/$(shell cat tools/go.mod tools/go.sum | cksum | cut -d' ' -f1)
export GOLANGCI_LINT_CACHE := $(CACHE)/golangci-lint

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -X main.buildVersion=$(VERSION) -X main.buildCommit=$(COMMIT)

# Modules that are part of the product, beside the root.
MODULES := api client
# Modules of tests alone, beside code that the product does not carry.
TEST_MODULES := pkg/policy/internal/gatekeepertest pkg/exchange/internal/natscompare pkg/notify/sinks/servertest
# The one of them that is built with cgo: tests of test/e2e build it, and ask it what was exported.
CGO_MODULES := test/duckdb
# Federator is built without cgo, and tested as it is built: with it kustomize's plugins have all binaries
# linked by gcc, with whatever a plugin might call, and the control planes share nothing with the tests.
export CGO_ENABLED := 0
# How many packages are tested at once: real control planes are heavy.
# Some of them wait for most of their time, therefore three on two cores.
P ?= 3
TIMEOUT ?= 30m
FUZZTIME ?= 60s
SOAK ?= 30m
HOSTILE ?= 10m
HOSTILE_SEED ?=
HOSTILE_CLASSES ?=
DIR ?=
MEMBERS ?= 250
KINDS ?= 47
CLIENTS ?= print
HISTORIES ?= 100000
PROGRAMS ?= 1000000
MUTATIONS ?= 10000
COUNT ?= 10
KILLS ?= 200
FAILOVERS ?= 20
CORRECTIONS ?= 500
RESTARTS ?= 200
AGENTS ?= 1000
WRITES ?= 500
LOSSES ?= 1000
AUDITS ?= 10000
LATENCY ?= 60ms
SHARDS ?= 6
SHARD_HISTORIES ?= 500
# Arguments for the programs behind demo and bench, e.g. ARGS='-run index'.
ARGS ?=

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/federator
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/federator ./cmd/federator

.PHONY: static
static: ## build dist/federator as the image has it, and check that it is static
	go build -trimpath -ldflags '-s -w $(LDFLAGS)' -o dist/federator ./cmd/federator
	@go version -m dist/federator | grep -q 'CGO_ENABLED=0'
	@if ldd dist/federator >/dev/null 2>&1; then echo 'dist/federator needs libraries'; exit 1; fi

.PHONY: kube
kube: ## build the control planes that tests run, once, into the cache
	go run ./test/kube/cmd/kubebuild

# What `go vet` says is a matter of verify, whose linter has it; and nobody debugs what is linked here: both cost minutes.
QUICK := -vet=off -ldflags=-w

# Those of test/ have fleets of control planes, which take much of a core each where there are more than the
# machine has cores. The longest is the first, so that nothing runs alone at the end.
.PHONY: test
test: kube helm ## run every test, real control planes included
	failed=; go test -p $(P) $(QUICK) -timeout $(TIMEOUT) $$(go list ./... | grep -v '/federator/test/') || failed=1; \
		go test -p 2 $(QUICK) -timeout $(TIMEOUT) ./test/ui ./test/... || failed=1; [ -z "$$failed" ]
	for m in $(MODULES); do (cd $$m && go test $(QUICK) -timeout 2m ./...); done
	$(MAKE) gatekeeper sinks

# Its build takes most of the time: Gatekeeper's own code is compiled.
.PHONY: gatekeeper
gatekeeper: ## compare with Gatekeeper: its matcher, framework and suites
	cd pkg/policy/internal/gatekeepertest && go test $(QUICK) -timeout 10m ./...

.PHONY: sinks
sinks: ## send messages to a NATS server with JetStream
	cd pkg/notify/sinks/servertest && go test $(QUICK) -short -timeout 5m ./...

# The first time, Alertmanager is built into the cache, which takes minutes.
.PHONY: alertmanager
alertmanager: ## the same, and alerts to an Alertmanager
	cd pkg/notify/sinks/servertest && go test $(QUICK) -timeout 20m ./...

.PHONY: gatekeeper-mutations
gatekeeper-mutations: ## compare verdicts on MUTATIONS mutated objects of the corpus with Gatekeeper's framework
	cd pkg/policy/internal/gatekeepertest && FEDERATOR_MUTATIONS=$(MUTATIONS) go test -count 1 -v -timeout 30m -run TestVerdicts_EqualFrameworkOnCorpus .

# One directory is tested at a time: templates of one name may be in several.
.PHONY: gatekeeper-library
gatekeeper-library: ## run the suites of a library of Gatekeeper's policies, in DIR
	@test -n "$(DIR)" || { echo 'DIR is the directory of a library'; exit 2; }
	grep -rl --include='*.yaml' --include='*.yml' '^kind: Suite' "$(DIR)" | xargs -n1 dirname | sort -u | \
		xargs go run ./cmd/federator policy test

race race-short: export CGO_ENABLED = 1

.PHONY: race
race: kube ## run the tests of pkg/, internal/ and cmd/ with the race detector and invariants checked
	go test -race -tags invariants -p $(P) -timeout 30m ./pkg/... ./internal/... ./cmd/...

# What starts goroutines or locks, and the rooms that such packages are internal to: there is no race elsewhere.
RACING = $(shell grep -lrE --include='*.go' --exclude='*_test.go' '\b(sync|atomic)\.|\bchan |\bgo func' pkg cmd internal | \
	xargs -n1 dirname | grep -v internal/cli | sed 'p;s,/internal/.*,,' | sort -u | sed 's,^,./,')

.PHONY: race-short
race-short: ## the same for a few minutes: only what may race, no control planes, few histories, no commands
	go test -race -short -tags invariants $(QUICK) -p $(P) -timeout 12m $(RACING)

# What npm brings, for the web UI and its stories.
.PHONY: ui-modules
ui-modules: ui/node_modules/.package-lock.json

ui/node_modules/.package-lock.json: ui/package-lock.json
	cd ui && npm ci --no-audit --no-fund
	@touch $@

.PHONY: ui
ui: ui-modules ## build the web UI, which the binary embeds, from ui/
	cd ui && npm run build

.PHONY: ui-check
ui-check: ui-modules ## check, test and build the web UI, and compare it with what is committed
	cd ui && npm test
	mkdir -p $(CACHE)
	cp -R pkg/webui/dist $(CACHE)/ui-committed.$$$$ && trap "rm -rf $(CACHE)/ui-committed.$$$$" EXIT && \
		cd ui && npm run build && node scripts/compare.mjs $(CACHE)/ui-committed.$$$$ ../pkg/webui/dist

.PHONY: ui-stories
ui-stories: export UI = full
ui-stories: kube ui-modules ## play all stories of the web UI in Chromium, and take the pictures of docs/ui
	mkdir -p docs/ui && UI_SCREENSHOTS=$(CURDIR)/docs/ui go test ./test/ui -run 'TestStories|TestScale|TestSizes' -v -count 1 -timeout 30m

.PHONY: ui-figures
ui-figures: export FIGURES = 1
ui-figures: export MEMBERS = 100
ui-figures: export PODS = 10000
ui-figures: export CHURN = 2000
ui-figures: kube ui-modules ## measure the web UI on 1,000,000 simulated pods under 2,000 changes a second, for MINUTES
	go test ./test/ui -run 'TestScale|TestLatency|TestClients' -v -count 1 -timeout 0

.PHONY: ui-audit
ui-audit: ui-modules ## ask npm whether what the web UI is built of has known vulnerabilities
	cd ui && npm audit

.PHONY: verify
verify: $(TOOLS)/golangci-lint ## check format, lint, layering, policies and module files
	$(TOOLS)/golangci-lint fmt --diff
	go vet -tags invariants ./pkg/aggregate/...
	$(TOOLS)/golangci-lint run --timeout 15m ./...
	for m in $(MODULES) $(TEST_MODULES); do (cd $$m && $(TOOLS)/golangci-lint run --timeout 5m ./...); done
	for m in $(CGO_MODULES); do (cd $$m && CGO_ENABLED=1 $(TOOLS)/golangci-lint run --timeout 5m ./...); done
	go run ./cmd/federator policy fmt --check policies
	go run ./cmd/federator policy test policies
	go run ./cmd/federator policy docs --check policies
	rm -rf $(CACHE)/generated && mkdir -p $(CACHE)/generated/crds
	cd api && $(TOOLS)/controller-gen object crd paths=./... output:object:dir=$(CACHE)/generated output:crd:dir=$(CACHE)/generated/crds
	diff -u $(CACHE)/generated/zz_generated.deepcopy.go api/v1alpha1/zz_generated.deepcopy.go
	diff -ru $(CACHE)/generated/crds charts/federator/crds
	$(MAKE) chart-lint
	go mod tidy -diff
	for m in $(MODULES) $(TEST_MODULES) $(CGO_MODULES) tools; do (cd $$m && go mod tidy -diff); done
	go mod verify

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint ## format the tree, and write what is generated of the policies
	$(TOOLS)/golangci-lint fmt
	go run ./cmd/federator policy fmt policies
	go run ./cmd/federator policy docs --write policies
	go run ./test/chart/readme --write charts/federator
	go run ./test/chart/readme --write charts/federator-agent

.PHONY: generate
generate: $(TOOLS)/golangci-lint ## write what is generated: DeepCopy of the API's types, CRDs, docs/reference
	cd api && $(TOOLS)/controller-gen object crd paths=./... output:crd:dir=../charts/federator/crds
	$(MAKE) docs

.PHONY: docs
docs: ## write docs/reference, from commands, configuration, metrics and CRDs
	DOCS=write go test -count 1 -run TestReference_IsUpToDate ./test/docs

.PHONY: tools
tools: $(TOOLS)/golangci-lint ## build the pinned tools into the cache

# The tests of the chart and of the documents run it; it prints where.
.PHONY: helm
helm: $(TOOLS)/helm ## build the pinned Helm and kubeconform into the cache
	@echo $(TOOLS)

# The directory's name is the hash of what the tools are: they are never out of date.
$(TOOLS)/helm:
	@mkdir -p $(TOOLS)
	@cd tools && go build -o $(TOOLS)/ github.com/yannh/kubeconform/cmd/kubeconform helm.sh/helm/v4/cmd/helm
	@touch $@

$(TOOLS)/golangci-lint:
	mkdir -p $(TOOLS)
	cd tools && go build -o $(TOOLS)/ tool
	touch $@

.PHONY: demo
demo: kube ## show the main job on real clusters, from a commit to a rollout that stops itself; DEMO=ci ends after it
	go run ./test/demo $(ARGS)

.PHONY: bench
bench: kube ## run the benchmarks and print their table
	go run ./test/bench $(ARGS)

.PHONY: scale
scale: ## measure a fleet of MEMBERS simulated members that serve KINDS kinds each
	go run ./test/bench -run '^scale/' -members $(MEMBERS) -kinds $(KINDS) $(ARGS)

.PHONY: scale-4000
scale-4000: ## measure 1,000, 2,000 and 4,000 members of 60 kinds: what a process for 10,000 follows from the slopes
	for n in 1000 2000 4000; do go run ./test/bench -run '^scale/rss' -members $$n -kinds 60 -pods 30 $(ARGS); done

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	root=$$PWD; for dir in . $(MODULES); do \
		cd "$$root/$$dir"; \
		for pkg in $$(go list ./...); do \
			for f in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
				echo "== $$pkg $$f"; \
				go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg; \
			done; \
		done; \
	done

.PHONY: shards
shards: kube ## compare processes that share a fleet with one that has it alone, over HISTORIES random histories, and play their stories and SHARD_HISTORIES random ones with SHARDS members
	FEDERATOR_HISTORIES=$(HISTORIES) go test -run 'TestShards_EqualOneProcess' -timeout 8h -count=1 -v ./pkg/policy
	SHARDS=$(SHARDS) SHARD_HISTORIES=$(SHARD_HISTORIES) go test -count=1 -timeout 8h -v ./test/shards

.PHONY: oracle
oracle: ## compare the policy engine with plain OPA over HISTORIES random histories of each kind: of written, generated and shipped policies, of time, and of versions; and PROGRAMS random programs compiled and interpreted
	FEDERATOR_HISTORIES=$(HISTORIES) go test -run 'EqualsFullEvaluation' -timeout 8h -count=1 -v ./pkg/policy
	ORACLE_PROGRAMS=$(PROGRAMS) SEED=random go test -run 'Generated_AgreesWithTopdown' -timeout 8h -count=1 -v ./pkg/policy/internal/compiled

.PHONY: explore
explore: kube ## run the packages with tests of random input COUNT times, with other seeds
	SEED=random go test -count $(COUNT) -timeout 3h -p $(P) $$(grep -rl --include='*_test.go' 'seed\.Of(t)' pkg internal cmd | xargs -n1 dirname | sort -u | sed 's,^,./,')

.PHONY: far
far: kube helm ## run every test with API servers LATENCY away, in each direction
	FEDERATOR_TEST_LATENCY=$(LATENCY) go test -count 1 -p $(P) -timeout 60m ./...

.PHONY: soak
soak: export SEED ?= random
soak: kube ## run random joins, leaves, writes and faults, those of connections too, for SOAK
	SOAK=$(SOAK) go test ./test/e2e -run Soak -v -count 1 -timeout 0

.PHONY: hostile
hostile: kube ## attack it from hostile members and readers for HOSTILE; HOSTILE_SEED repeats a run
	HOSTILE=$(HOSTILE) HOSTILE_SEED=$(HOSTILE_SEED) HOSTILE_CLASSES=$(HOSTILE_CLASSES) go test ./test/hostile -run Hostile -v -count 1 -timeout 0

.PHONY: agents
agents: kube ## have AGENTS agents join, lose federator and renew: real TLS and hub, simulated members
	AGENTS=$(AGENTS) go test ./test/agents -v -count 1 -timeout 0

.PHONY: clients
clients: kube helm ## print what clients get beside what a real API server answers; CLIENTS=write writes docs/clients.md
	CLIENTS=$(CLIENTS) go test ./test/clients -run Clients -v -count 1 -timeout $(TIMEOUT)

SCHEDULES ?= 1000000
WHOLE ?= 30000
FIRST ?= 1

.PHONY: simulate
simulate: ## run SCHEDULES simulated schedules of corrections, WHOLE with hub and git, from seed FIRST on; SEED=n or WHOLE_SEED=n prints one
	$(if $(WHOLE_SEED),,go test ./test/simulation -run StayWithinTheirBounds -v -count 1 -timeout 0 -args -schedules $(SCHEDULES) -first $(FIRST) $(if $(SEED),-seed $(SEED)))
	$(if $(SEED),,go test ./test/simulation -run StaysWithinItsBounds -v -count 1 -timeout 0 -args -schedules $(WHOLE) -first $(FIRST) $(if $(WHOLE_SEED),-seed $(WHOLE_SEED)))

.PHONY: simulate-mutations
simulate-mutations: kube ## with each defect of test/simulation/testdata/mutations: what finds it; ARGS=-update writes README.md
	test/simulation/mutations.sh $(ARGS) 3000

.PHONY: audit
audit: kube ## lose LOSSES events before a real API server, and run AUDITS audits beside 500 writes a second
	LOSSES=$(LOSSES) AUDITS=$(AUDITS) WRITES=500 go test ./test/audit -v -count 1 -timeout 0

.PHONY: crash
crash: export SEED ?= random
crash: kube ## kill processes that correct, or notify, KILLS times, and FAILOVERS leaders
	KILLS=$(KILLS) FAILOVERS=$(FAILOVERS) CORRECTIONS=$(CORRECTIONS) go test ./test/crash -run Crash -v -count 1 -timeout 0
	KILLS=$(KILLS) go test -p 1 ./pkg/notify ./pkg/notify/delivery ./pkg/hub/notices -run SurvivesKills -v -count 1 -timeout 0

# Real members are written to all the while, WRITES times a second.
.PHONY: restart
restart: export SEED ?= random
restart: kube ## kill federator RESTARTS times under writes: it goes on without a list, and its readers do, too
	RESTARTS=$(RESTARTS) WRITES=$(WRITES) go test ./test/restart -v -count 1 -timeout 0

.PHONY: crash-mutations
crash-mutations: kube ## with each defect of test/crash/testdata/mutations: what a short turn finds
	test/crash/mutations.sh

.PHONY: faults
faults: export FAULTS ?= all
faults: kube ## break links, servers, hub, process and disk under writes and readers; FAULTS=write writes test/faults/README.md
	go test ./test/faults -run Faults -v -count 1 -timeout 0

.PHONY: chart
chart: kube chart-lint ## check the Helm chart, on a real hub too
	go test -count 1 -timeout $(TIMEOUT) ./test/chart

.PHONY: chart-lint
chart-lint: $(TOOLS)/helm kube
	$(TOOLS)/helm lint --strict charts/federator
	$(TOOLS)/helm lint --strict charts/federator --values test/chart/testdata/full.yaml
	$(TOOLS)/helm lint --strict charts/federator-agent
	go run ./test/chart/readme --check charts/federator
	go run ./test/chart/readme --check charts/federator-agent
	go test -run "^Test(Schema|ManifestsConform)" ./test/chart

.PHONY: clean
clean: ## remove what was built in the tree; the cache stays
	rm -rf bin dist coverage.out
