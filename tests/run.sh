#!/usr/bin/env bash
# Everything that shows that this tree works, from a machine with nothing installed.
#   tests/run.sh           all tests: release, address+undefined and thread sanitizers, fuzz corpora, system, simulator
#   tests/run.sh --quick   the release build and its tests only, few simulator seeds
#   tests/run.sh --soak    all tests, longer: 20,000 simulator seeds, 10,000 submits,
#                          a minute of fuzzing per decoder and of a frozen machine
# The last line is 'N passed, N failed'; exit 0 when nothing failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Compiled objects are found again from another checkout of the same sources.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

mode=full
case "${1:-}" in
  "") ;;
  --quick) mode=quick ;;
  --soak) mode=soak ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
jobs=$(nproc)
if [ "$mode" = soak ]; then export DTRAIN_FROZEN_SECONDS=60 DTRAIN_SUBMITS=10000; fi
case $mode in quick) seeds=50 ;; full) seeds=500 ;; soak) seeds=20000 ;; esac
fuzz_seconds=60
passed=0
failed=0
failures=()
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT

# step NAME COMMAND...: one thing that counts as one test.
step() {
  local name=$1
  shift
  echo "== $name"
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("$name")
  fi
}

# build NAME DIRECTORY PRESET [TARGET...]: quiet unless it fails; counts only then.
build() {
  local name=$1 directory=$2 preset=$3
  shift 3
  echo "== build $name"
  if cmake --preset "$preset" >"$reports/build.log" 2>&1 &&
     cmake --build "$directory" --parallel "$jobs" ${1:+--target "$@"} >>"$reports/build.log" 2>&1; then
    return 0
  fi
  tail -n 60 "$reports/build.log"
  failed=$((failed + 1))
  failures+=("build $name")
  return 1
}

# run_tests NAME DIRECTORY [CTEST OPTION...]: every test that ctest knows there counts.
run_tests() {
  local name=$1 directory=$2 counts good bad report=$reports/ctest.xml
  shift 2
  echo "== tests $name"
  rm -f "$report"
  ctest --test-dir "$directory" --output-on-failure --no-tests=error --parallel 2 --output-junit "$report" "$@" || true
  if ! counts=$(/usr/bin/python3 tests/count_junit.py "$report"); then
    failed=$((failed + 1))
    failures+=("$name: no result")
    return 0
  fi
  read -r good bad < <(head -n 1 <<<"$counts")
  passed=$((passed + good))
  failed=$((failed + bad))
  while read -r test; do failures+=("$name: $test"); done < <(tail -n +2 <<<"$counts")
}

# targets DIRECTORY REGEX: the programs behind the tests of that name (cmake/tests.cmake names them alike).
targets() {
  ctest --test-dir "$1" --show-only=json-v1 -R "$2" | /usr/bin/python3 -c '
import json, sys
print("\n".join(test["name"].removesuffix("_corpus") for test in json.load(sys.stdin)["tests"]))'
}

# sanitized PRESET REGEX [MORE TARGET...]: only what the tests of that name need is built.
sanitized() {
  local preset=$1 directory=build-$1 regex=$2 programs
  shift 2
  if ! cmake --preset "$preset" >"$reports/build.log" 2>&1; then
    tail -n 60 "$reports/build.log"
    failed=$((failed + 1))
    failures+=("configure $preset")
    return 0
  fi
  mapfile -t programs < <(targets "$directory" "$regex")
  if build "$preset" "$directory" "$preset" "${programs[@]}" "$@"; then
    run_tests "$preset" "$directory" -R "$regex"
  fi
}

fuzz() {
  local source program
  for source in tests/fuzz/fuzz_*.cpp; do
    program=$(basename -s .cpp "$source")
    step "$program for $fuzz_seconds s" ./tests/fuzz/run.sh "$fuzz_seconds" "$program"
  done
}

if ! ./tests/setup.sh; then
  echo "could not install the packages of .ci/packages; see above"
  echo "0 passed, 1 failed"
  exit 1
fi

if build release build release; then
  run_tests release build
  for world in cluster "cluster --nodes 3" council formation lease; do
    # shellcheck disable=SC2086
    step "simulator, world $world, seeds 1..$seeds" build/bin/dtrain-sim --world $world --seeds "1..$seeds"
  done
fi
if [ "$mode" != quick ]; then
  sanitized asan '^(unit_|property$|scenarios$|conformance$|fuzz_)' dtrain-shim
  sanitized tsan '^unit_(loop|store)$'
fi
if [ "$mode" = soak ]; then
  fuzz
fi

echo
for failure in "${failures[@]}"; do
  echo "failed: $failure"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
