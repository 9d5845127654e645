# Two commands to begin with: make demo, make test. Both install what is missing, then build.
BUILD ?= build
JOBS ?= $(shell nproc)
DEMO ?= demo
PREFIX ?= /usr/local
PROGRAM = $(BUILD)-program
# Looked up when a recipe runs: by then it has been installed.
LAUNCHERS = $(shell command -v ccache >/dev/null && echo CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache)
# Without these ccache passes by whatever uses precompiled headers, as the tests do.
export CCACHE_SLOPPINESS = pch_defines,time_macros

.PHONY: demo test build program install package bench dist sanitize fuzz format check web clean setup

build: setup
	@$(LAUNCHERS) cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)

setup:
	@scripts/setup build

# The program alone, a module's files compiled together, since most of compiling is reading headers. `build` and what
# checks it compile each file by itself: there one cannot live on what another includes.
program: setup
	@$(LAUNCHERS) cmake -S . -B $(PROGRAM) -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON \
	  -DQUAVER_TESTS=OFF -DQUAVER_BENCHMARKS=OFF >/dev/null
	@cmake --build $(PROGRAM) -j $(JOBS) --target quaver

# PREFIX/bin/quaver, the CUDA engine in lib/ where nvcc is found, docs and examples in share/quaver/.
install: program
	@cmake --build $(PROGRAM) -j $(JOBS) --target program
	@cmake --install $(PROGRAM) --prefix '$(PREFIX)' >/dev/null
	@echo "installed $(PREFIX)/bin/quaver"

# Debian packages of the program, its modules, the library and the Python package, in $(BUILD)-package/packages, each
# tried from an unpacked tree.
package: setup
	@$(LAUNCHERS) cmake -S . -B $(BUILD)-package -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON \
	  -DCMAKE_INSTALL_PREFIX=/usr -DQUAVER_TESTS=OFF -DQUAVER_BENCHMARKS=OFF >/dev/null
	@cmake --build $(BUILD)-package -j $(JOBS)
	@cd $(BUILD)-package && cpack >/dev/null
	@scripts/library-test packages $(BUILD)-package/packages
	@ls $(BUILD)-package/packages/*.deb

# A corpus that every machine able to build this has, five recipes, a table and a report. Without a GPU it needs no CUDA
# engine, which takes minutes to build.
demo: program
	@$(if $(wildcard /dev/nvidia[0-9]*),cmake --build $(PROGRAM) -j $(JOBS) --target program)
	@scripts/demo $(PROGRAM)/quaver $(DEMO)

test: build
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

bench: build
	@scripts/bench $(BUILD)

# A folder to copy to other machines, with the CUDA engine for these architectures, in dist/.
ARCHITECTURES ?= 80;89;90a;100f;120f
dist: setup
	@scripts/dist $(BUILD)-dist '$(ARCHITECTURES)' $(JOBS)

# The tests again with AddressSanitizer and UndefinedBehaviorSanitizer; several files at a time, since most of compiling
# is reading headers.
sanitize: setup
	@$(LAUNCHERS) cmake -S . -B $(BUILD)-sanitize -G Ninja -DCMAKE_BUILD_TYPE=Sanitize -DCMAKE_CXX_FLAGS_SANITIZE="-O1 -g1" \
	  -DQUAVER_SANITIZE=address,undefined -DQUAVER_BENCHMARKS=OFF -DCMAKE_UNITY_BUILD=ON >/dev/null
	@cmake --build $(BUILD)-sanitize -j $(JOBS)
	@cd $(BUILD)-sanitize && ctest --output-on-failure -j $(JOBS) -LE slow

# A few minutes of libFuzzer on everything that reads files. FUZZ_SECONDS is for each target.
FUZZ_SECONDS ?= 30
fuzz:
	@scripts/setup build && scripts/setup fuzz
	@cmake -S . -B $(BUILD)-fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER=clang++ -DQUAVER_FUZZERS=ON \
	  -DQUAVER_SANITIZE=address,undefined -DQUAVER_TESTS=OFF -DQUAVER_BENCHMARKS=OFF -DCMAKE_UNITY_BUILD=ON >/dev/null
	@cmake --build $(BUILD)-fuzz -j $(JOBS) --target fuzzers
	@scripts/fuzz $(BUILD)-fuzz $(FUZZ_SECONDS)

# The dashboard's page: that web/dist is what its sources give, and every view in a browser, against a mock server and
# against this build with a recorded and a live run.
web: build
	@scripts/setup web
	@scripts/web check
	@scripts/web test
	@scripts/dash-test $(BUILD)/quaver

format:
	@scripts/setup check
	@git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

check: build
	@scripts/setup check
	@scripts/check $(BUILD)

clean:
	@rm -rf $(BUILD) $(PROGRAM) $(BUILD)-sanitize $(BUILD)-fuzz $(BUILD)-dist $(BUILD)-package dist
