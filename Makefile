# The front door: every target brings what it needs (scripts/deps), then does its work. `make help` lists them.
# CMake and Ninja build; this file only says what is built and run for what.
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := build
.PHONY: help deps build run test test-full unit e2e page test-page sanitize bench lint format asan ubsan tsan fuzz \
        clean distclean deps-run deps-test deps-lint deps-fuzz deps-page

MODEL        ?= .models/SmolLM2-135M-Instruct.Q4_1.gguf
PROMPT       ?= The three things that make a good tool are
TOKENS       ?= 64
FUZZ_SECONDS ?= 60
PYTEST       ?= .venv/bin/python -m pytest
# Anything for pytest: make e2e ARGS='-k chat -x'
ARGS         ?=

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | column -t -s '|'

deps: ## bring everything that building, running and testing need
	@scripts/deps build run test
deps-run deps-test deps-lint deps-fuzz deps-page: deps-%:
	@scripts/deps $*

build: ## build/grappa
	@scripts/deps build
	@scripts/build default

run: deps-run ## build, fetch SmolLM2 135M if need be, and let it write (MODEL=, PROMPT=, TOKENS=)
	@scripts/build default
	@build/grappa run -m "$(MODEL)" -p "$(PROMPT)" -n $(TOKENS) --temp 0

test: deps-test ## unit tests, fuzz corpus, e2e and parity tests, and a slice of them under sanitizers
	@scripts/build default
	@scripts/test unit build
	@scripts/test pytest build $(ARGS)
	@$(MAKE) sanitize

test-full: deps-test ## test, and all of e2e under sanitizers, the slow tests, and new fuzzing
	@scripts/build default
	@scripts/test unit build
	@scripts/test pytest build --slow $(ARGS)
	@SLICE=all $(MAKE) sanitize
	@$(MAKE) ubsan
	@$(MAKE) test-page
	@scripts/test shared build
	@$(MAKE) fuzz

unit: deps-test ## only the unit tests and the fuzz corpus
	@scripts/build default
	@scripts/test unit build

e2e: deps-test ## only the e2e and parity tests (ARGS= for pytest)
	@scripts/build default
	@scripts/test pytest build $(ARGS)

page: ## web/dist from web/src (needs Node.js 20.19 and npm)
	@scripts/page

test-page: deps-page ## the chat page in a real Chromium
	@scripts/build default
	@$(PYTEST) -q -p no:cacheprovider --timeout=300 tests/page

sanitize: asan tsan

asan: deps-test ## AddressSanitizer and UndefinedBehaviorSanitizer: unit tests, and a slice of e2e
	@scripts/build asan
	@scripts/test unit build-asan
	@scripts/test slice build-asan

tsan: deps-test ## ThreadSanitizer: unit tests
	@scripts/build tsan
	@scripts/test unit build-tsan

ubsan: deps-test ## UndefinedBehaviorSanitizer alone: unit tests, and a slice of e2e
	@scripts/build ubsan
	@scripts/test unit build-ubsan
	@scripts/test slice build-ubsan

fuzz: deps-fuzz ## libFuzzer, each target for FUZZ_SECONDS (60) from its corpus
	@scripts/build fuzz
	@scripts/fuzz build-fuzz $(FUZZ_SECONDS)

bench: deps-test ## side by side with the peers that are at hand (bench/compare --help)
	@scripts/build default
	@.venv/bin/python bench/compare $(ARGS)

lint: deps-lint ## formatting, clang-tidy, cppcheck, and the arrows between rooms
	@scripts/build default
	@scripts/lint

format: ## clang-format over our own sources
	@git ls-files '*.c' '*.h' '*.cpp' | xargs clang-format -i

clean: ## remove what was built
	@rm -rf build build-asan build-ubsan build-tsan build-fuzz

distclean: clean ## and what was fetched
	@rm -rf .venv .models
