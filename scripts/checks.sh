#!/usr/bin/env bash
# The checks beside `make test`, one at a time: scripts/checks.sh asan|tsan|tidy|format-check
# SHARE=I/N makes asan and tsan run every Nth test, and tidy read every Nth file, starting with the Ith (from 0), so that CI gets round all of
# them in N runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly SHARE=${SHARE:-0/1}
readonly FIRST=${SHARE%/*} STEP=${SHARE#*/}
readonly THREADED=(base comm data engine launch monitor train)  # the folders whose tests start threads

build_with() {
  local folder=$1 sanitizers=$2
  shift 2
  cmake -S . -B "$folder" -G Ninja -DCMAKE_UNITY_BUILD=ON -DCMAKE_CXX_COMPILER="$(scripts/setup.sh --print-compiler)" \
    -DTRIREME_SANITIZE="$sanitizers"
  cmake --build "$folder" "$@"
}

sources() { git ls-files -- '*.cpp' '*.h' '*.cu'; }

# LibTorch keeps its registries until exit, so leaks are looked for in our own code only. Thread-local memory of libraries that are loaded late is
# left alone: where it lies GCC 12's runtime guesses, at times so wrongly that it crashes at exit.
asan() {
  build_with build-asan address,undefined
  ASAN_OPTIONS=detect_stack_use_after_return=1:intercept_tls_get_addr=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    LSAN_OPTIONS=suppressions=$PWD/scripts/lsan.supp \
    ctest --test-dir build-asan -j2 --output-on-failure --no-tests=error -I $((FIRST + 1)),,"$STEP"
}

tsan() {
  local folder targets=()
  for folder in "${THREADED[@]}"; do
    compgen -G "tests/$folder/*.cpp" >/dev/null && targets+=("trireme_${folder}_tests")
  done
  # The binary too: some of these tests start it.
  build_with build-tsan thread --target trireme "${targets[@]}"
  for folder in "${targets[@]}"; do
    printf '== %s\n' "$folder"
    GTEST_TOTAL_SHARDS=$STEP GTEST_SHARD_INDEX=$FIRST \
      TSAN_OPTIONS=suppressions=$PWD/scripts/tsan.supp:ignore_noninstrumented_modules=1:halt_on_error=1 "build-tsan/tests/$folder"
  done
}

# Configured file by file, as it is read: so each file is seen to include what it uses, which those taken together may not.
tidy() {
  cmake -S . -B build-tidy -G Ninja -DCMAKE_CXX_COMPILER="$(scripts/setup.sh --print-compiler)" >/dev/null
  git ls-files -- 'src/*.cpp' 'tests/*.cpp' 'bench/*.cpp' |
    awk -v first="$FIRST" -v step="$STEP" '(NR - 1) % step == first' |
    xargs -r -d '\n' -P 2 -n 1 clang-tidy -p build-tidy --quiet
}

format-check() {
  sources | xargs -d '\n' clang-format --dry-run --Werror
}

case ${1:-} in
  asan | tsan | tidy | format-check) "$1" ;;
  *)
    sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
