# Every verb of the project. `make help` lists them; .ci/run calls nothing else.
ARCH    ?= x86_64
override ARCH := $(patsubst amd64,x86_64,$(patsubst aarch64,arm64,$(ARCH)))
OUT     ?= _out
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
# Formats of `make image`, separated by commas; without any, all there are for the architecture.
OUTPUTS ?=
BIN     := $(or $(CARGO_TARGET_DIR),target)/debug
CASES   ?= 20000
SUDO    := $(if $(filter 0,$(shell id -u)),,sudo)

# The inputs of a build that are not files: never the clock, never the machine. Date and commit are for
# mkimage alone: cargo would compile every crate with C in it again after each commit.
export CORTEN_VERSION ?= $(VERSION)
SOURCE_DATE_EPOCH     ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
CORTEN_COMMIT         ?= $(shell git describe --always --dirty --exclude '*' --abbrev=12 2>/dev/null)
MKIMAGE               := SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) CORTEN_COMMIT=$(CORTEN_COMMIT) $(BIN)/mkimage
export CORTEN_OUT     ?= $(CURDIR)/$(OUT)
export CORTEN_ARCH    := $(ARCH)

# What `make deps` installs. The image's own compiler and files come by lock, not from here.
PACKAGES := ca-certificates git make gcc libc6-dev pkg-config curl clang-19 lld-19 llvm-19 libclang-19-dev libudev-dev \
    libkmod-dev protobuf-compiler libprotobuf-dev flex bison bc libelf-dev libssl-dev openssl python3 kmod rsync xz-utils \
    zstd cpio bsdextrautils squashfs-tools xorriso mtools dosfstools fdisk grub-common grub-pc-bin qemu-utils \
    qemu-system-x86 ovmf ipxe-qemu qemu-system-arm qemu-efi-aarch64 mmdebstrap xfsprogs udhcpd dnsmasq-base iproute2

# What `make test` boots; `make test-vm` boots all.
BOOTED := hardening rootfs host_ports boot maintenance volumes supervision
# The tests that boot machines; other ignored tests need other things.
ALL_VM_TESTS := $(patsubst tests/%.rs,--test %,$(shell grep -l '"make test-vm"' tests/*.rs))

.DEFAULT_GOAL := help

help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## Install the host tools; as root (no build and no `make test` needs it)
	@if ! command -v apt-get >/dev/null; then \
	    echo "This machine has no apt; install by its own means: $(PACKAGES) cargo rustc"; \
	    exit 0; \
	fi; \
	missing=$$(for package in $(PACKAGES); do \
	    dpkg-query -W -f '$${Status}' $$package 2>/dev/null | grep -q 'ok installed' || echo $$package; \
	done; command -v cargo >/dev/null || echo cargo-web rustc-web); \
	[ -z "$$missing" ] || { $(SUDO) apt-get update -qq && \
	    $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; }

build: deps ## Compile every program and test
	cargo build --locked --workspace --lib --bins --tests

check: deps ## Formatting, lints and documentation
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items --quiet

docs: deps ## Write the documentation as one site to $(OUT)/docs
	cargo run --locked --quiet -p tests --bin site -- $(OUT)/docs

host-tools: deps ## Compile what builds and boots images
	cargo build --locked -p mkimage -p qemu -p cortenctl

image: host-tools ## Build every image format into $(OUT)
	$(MKIMAGE) build --arch $(ARCH) $(addprefix --output ,$(OUTPUTS)) --out $(OUT)

iso: host-tools ## Build the ISO alone
	$(MKIMAGE) build --arch $(ARCH) --output iso --out $(OUT)

run: host-tools ## Build a disk image, boot it in QEMU as a cluster and say how to call it (KUBERNETES=no: a node alone)
	MKIMAGE="$(MKIMAGE)" BIN=$(abspath $(BIN)) ARCH=$(ARCH) VERSION=$(VERSION) OUT=$(abspath $(OUT)) qemu/run

test: build ## Unit, golden and process tests, then every way to boot and what a node must survive
	cargo test --locked --workspace
	$(MKIMAGE) build --arch $(ARCH) --output raw,iso,pxe --out $(OUT)
	$(MAKE) --no-print-directory test-vm VM_TESTS="$(BOOTED:%=--test %)"

test-vm: build ## All tests that boot the images `make image` wrote to $(OUT): an hour and more, not in CI
	cargo test --locked --workspace $(or $(VM_TESTS),$(ALL_VM_TESTS)) -- --ignored --test-threads=1

test-arm64: build ## Build the arm64 images and boot them in QEMU: hours without a built kernel, not in CI
	$(MKIMAGE) build --arch arm64 --out $(OUT)
	CORTEN_ARCH=arm64 cargo test --locked --package tests --test boot --test rootfs --test formats --test hardening -- \
	    --ignored --test-threads=1 --skip _bios

test-containerd: build ## The container runner against the containerd of the image; as root
	go=$$(MKIMAGE="$(MKIMAGE)" ARCH=$(ARCH) qemu/step rootfs go) && \
	CORTEN_GO=$$go CORTEN_NODE=$(abspath $(BIN))/corten-node \
	    cargo test --locked --package corten-containerd --lib -- --ignored client::real_tests

test-kubernetes: build ## Clusters in QEMU out of the bundled images, restored from a snapshot, and upgraded: hours; as root, not in CI
	MKIMAGE="$(MKIMAGE)" ARCH=$(ARCH) OUT=$(abspath $(OUT))/kubernetes qemu/versions clusters
	kubectl=$$(MKIMAGE="$(MKIMAGE)" ARCH=$(ARCH) OUT=$(abspath $(OUT)) qemu/kubectl) && CORTEN_OUT=$(abspath $(OUT))/kubernetes CORTEN_KUBECTL=$$kubectl \
	    cargo test --locked --package tests --test kubernetes --test fleet -- --ignored --test-threads=1

test-cluster: build ## Clusters of containers on this machine, from nothing to Ready (TESTS=docker: of Docker); as root
	MKIMAGE="$(MKIMAGE)" ARCH=$(ARCH) BIN=$(abspath $(BIN)) OUT=$(abspath $(OUT)) tests/clusters $(addprefix --test ,$(or $(TESTS),cluster pods licences))

conformance: build ## The conformance tests of Kubernetes in a cluster of containers (FOCUS picks some): hours; as root, not in CI
	MKIMAGE="$(MKIMAGE)" ARCH=$(ARCH) BIN=$(abspath $(BIN)) OUT=$(abspath $(OUT)) tests/clusters --test conformance

test-upgrade: build ## Upgrade, roll back, and versions that do not come up, in QEMU: an hour, not in CI
	MKIMAGE="$(MKIMAGE)" ARCH=$(ARCH) OUT=$(abspath $(OUT))/upgrade qemu/versions machines
	CORTEN_OUT=$(abspath $(OUT))/upgrade cargo test --locked --package tests --test upgrade -- --ignored --test-threads=1 $(if $(filter arm64,$(ARCH)),--skip _bios)

test-crash: build ## A recorded upgrade, cut off at every write, and upgrades in loops under power cuts (CASES: 200 each): hours, not in CI
	MKIMAGE="$(MKIMAGE)" ARCH=$(ARCH) OUT=$(abspath $(OUT))/upgrade qemu/versions machines
	CORTEN_OUT=$(abspath $(OUT))/upgrade cargo test --locked --package tests --test crash --test power_loop -- --ignored --test-threads=1

fuzz: deps ## Run the tests named hostile, with CASES (20,000) generated inputs each
	PROPTEST_CASES=$(CASES) cargo test --locked --workspace hostile

repro: deps ## Build twice in different environments and compare every byte
	cargo test --locked --workspace --test reproducible -- --ignored --nocapture

bench: build image ## Boot, memory, sizes, devices beside a minimal Debian; rebuilds; cargo bench; writes docs/bench.md, fails if a limit is not kept
	MKIMAGE="$(MKIMAGE)" ARCH=$(ARCH) $(BIN)/bench $(addprefix --only ,$(PARTS))

clean: ## Remove what was built here; the cache stays
	rm -rf $(OUT) target

.PHONY: help deps docs host-tools build check image iso run test test-vm test-arm64 test-containerd test-kubernetes test-cluster conformance test-upgrade test-crash fuzz repro bench clean
