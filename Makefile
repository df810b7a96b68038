# Trireme in two commands: `make quickstart` trains a small language model here, `make test` builds everything and tests it.
# Both install what is missing first (scripts/setup.sh). The other targets are for those who work on it: see CONTRIBUTING.md.

.PHONY: quickstart test build docs bench asan tsan tidy format-check checks clean

build := build
# $$: asked for when the recipe has come there; before the set-up there may be no compiler.
configure = cmake -S . -G Ninja -DCMAKE_UNITY_BUILD=ON -DCMAKE_CXX_COMPILER="$$(scripts/setup.sh --print-compiler)"

quickstart:
	scripts/setup.sh
	$(configure) -B $(build)
	cmake --build $(build) --target trireme trireme_text_baselines
	scripts/quickstart.sh

test:
	scripts/setup.sh --tests
	$(configure) -B $(build)
	cmake --build $(build)
	ctest --test-dir $(build) -j2 --output-on-failure --no-tests=error

build:
	scripts/setup.sh
	$(configure) -B $(build)
	cmake --build $(build)

docs: build
	$(build)/trireme config docs > docs/configuration.md
	bench/table.py > docs/benchmarks.md
	bench/performance.py > docs/performance.md

bench:
	bench/build_times.sh
	bench/table.py > docs/benchmarks.md

asan tsan tidy format-check: %:
	scripts/setup.sh --tests --checks
	scripts/checks.sh $@

checks: asan tsan tidy format-check

clean:
	rm -rf $(build) build-asan build-tidy build-tsan
