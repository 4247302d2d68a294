# A thin front end to CMake; `make help` lists the targets. All results are in build/.
.PHONY: all quickstart check quick check-slurm lint format asan tsan fuzz bench soak install clean help

PREFIX ?= /usr/local
build = cmake --preset $(1) >build/$(1).log 2>&1 || { cat build/$(1).log; exit 1; }; cmake --build --preset $(1)

all: ## build the release
	@mkdir -p build
	@$(call build,release)

quickstart: ## install what is missing, build, train Fashion-MNIST on 2 workers
	@tools/install-deps.sh --run
	@mkdir -p build
	@$(call build,release) --target kolo-cli
	build/release/kolo train --model lenet --data fashion-mnist --workers 2 --batch 32 --epochs 8 \
		--lr 0.05 --momentum 0.9 --weight-decay 0.0005 --schedule cosine --warmup-epochs 0.5

check: ## install what is missing, build, run every test
	@tools/install-deps.sh
	@tools/check.sh

quick: ## format, source rules, words and unit tests, after a build
	@tools/check.sh quick

check-slurm: ## jobs started by srun, on a three-node Slurm cluster set up for the test (root)
	@tools/install-deps.sh --slurm
	@mkdir -p build
	@$(call build,release) --target kolo-cli
	@tests/launchers/slurm.sh build/release

lint: all ## format, clang-tidy, source rules, headers, symbols
	@tools/lint.sh

format: ## put all sources and documents into the common style
	@find src models include tests bench -name '*.[ch]' -exec clang-format -i {} +
	@tools/wrap_docs.py

asan: ## unit and rank tests under the address and undefined-behaviour sanitizers
	@tools/check.sh asan

tsan: ## tests of threads and communication under the thread sanitizer
	@tools/check.sh tsan

fuzz: ## fuzz each reader for a minute (SECONDS=n)
	@tools/fuzz.sh $(or $(SECONDS),60)

bench: all ## training and allreduce, as JSON
	build/release/kolo bench train --model lenet --batch 64 --threads 1 --json -
	build/release/kolo bench allreduce --ranks 2 --sizes 8,1K,1M,16M --algorithm auto --json -

soak: all ## the tests with their longest tables (hours)
	@tools/check.sh soak

install: all ## install to PREFIX (default /usr/local)
	cmake --install build/release --prefix "$(PREFIX)"

clean: ## remove build/
	rm -rf build

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile
