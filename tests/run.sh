#!/usr/bin/env bash
# Everything that shows that this tree works, from a machine with nothing installed.
#   tests/run.sh           all tests: release, address and undefined-behaviour sanitizers, fuzz corpora, system, simulator;
#                          what the address sanitizer watches is built there only
#   tests/run.sh --quick   the release build and its tests only, few simulator seeds
#   tests/run.sh --soak    all tests, in the release build, too, the thread sanitizer's, and longer: 20,000 simulator seeds of whole
#                          clusters, 100,000 of the other worlds, 10,000 submits, ten minutes of random kills, half an hour of an
#                          ordinary day, 50 hosts cut off, a minute without a quorum, of fuzzing per decoder, of a frozen machine and
#                          of frozen tasks
# Before the last lines: how many seconds each step took, and the slowest tests of each build. The last line is 'N passed, N failed';
# exit 0 when nothing failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Compiled objects are found again from another checkout of the same sources.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

mode=full
case "${1:-}" in
  "") ;;
  --quick) mode=quick ;;
  --soak) mode=soak ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
jobs=$(nproc)
if [ "$mode" = soak ]; then
  export DTRAIN_FROZEN_SECONDS=60 DTRAIN_SUBMITS=10000 DTRAIN_KILL_SECONDS=600 DTRAIN_CUTS=50 DTRAIN_QUORUM_LOST_SECONDS=60
  export DTRAIN_DAY_SECONDS=1800
fi
# Of the simulator: whole clusters, and the other worlds.
case $mode in quick) cluster_seeds=50 seeds=50 ;; full) cluster_seeds=500 seeds=500 ;; soak) cluster_seeds=20000 seeds=100000 ;; esac
fuzz_seconds=60
passed=0
failed=0
failures=()
skips=()     # what said itself that it cannot run on this machine
times=()     # seconds and step, of each
began=0      # when the step that is under way did, in SECONDS
reports=$(mktemp -d)
trap 'end_idle_build; rm -rf "$reports"' EXIT

begin() {
  echo "== $1"
  began=$SECONDS
}
took() { times+=("$(printf '%5d s  %s' $((SECONDS - began)) "$1")"); }

# step NAME COMMAND...: one thing that counts as one test.
step() {
  local name=$1
  shift
  begin "$name"
  if "$@"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    failures+=("$name")
  fi
  took "$name"
}

# build NAME DIRECTORY PRESET [TARGET...]: quiet unless it fails; counts only then.
build() {
  local name=$1 directory=$2 preset=$3
  shift 3
  begin "build $name"
  if cmake --preset "$preset" >"$reports/build.log" 2>&1 &&
     cmake --build "$directory" --parallel "$jobs" ${1:+--target "$@"} >>"$reports/build.log" 2>&1; then
    took "build $name"
    return 0
  fi
  tail -n 60 "$reports/build.log"
  failed=$((failed + 1))
  failures+=("build $name")
  return 1
}

# run_tests NAME DIRECTORY [CTEST OPTION...]: every test that ctest knows there counts.
run_tests() {
  local name=$1 directory=$2 counts good bad report=$reports/ctest.xml beside=$((jobs + 1))
  shift 2
  # Tests of real programs wait most of their time, and of the others those of processes and networks do.
  if [ "$name" = release ]; then beside=$((jobs * 2)); fi
  begin "tests $name"
  rm -f "$report"
  # Briefly: of a program of two hundred tests the one that failed is to be seen in whatever part of the output is kept.
  GTEST_BRIEF=1 ctest --test-dir "$directory" --output-on-failure --no-tests=error --parallel "$beside" --output-junit "$report" "$@" ||
    true
  took "tests $name"
  if ! counts=$(/usr/bin/python3 tests/count_junit.py "$report"); then
    failed=$((failed + 1))
    failures+=("$name: no result")
    return 0
  fi
  read -r good bad < <(head -n 1 <<<"$counts")
  passed=$((passed + good))
  failed=$((failed + bad))
  while read -r test; do
    case $test in
      skipped:*) skips+=("$name: ${test#skipped: }") ;;
      slow:*) times+=("${test#slow: }") ;;
      *) failures+=("$name: $test") ;;
    esac
  done < <(tail -n +2 <<<"$counts")
}

# targets DIRECTORY REGEX: the programs behind the tests of that name (cmake/tests.cmake names them alike), but for those
# written in Python.
targets() {
  ctest --test-dir "$1" --show-only=json-v1 -R "$2" | /usr/bin/python3 -c '
import json, sys
names = [test["name"].removesuffix("_corpus") for test in json.load(sys.stdin)["tests"]]
print("\n".join(name for name in names if not name.startswith(("system_", "tidy_", "warm_"))))'
}

# configure NAME PRESET: quiet unless it fails; counts only then.
configure() {
  if cmake --preset "$2" >"$reports/build.log" 2>&1; then
    return 0
  fi
  tail -n 60 "$reports/build.log"
  failed=$((failed + 1))
  failures+=("configure $1")
  return 1
}

# build_and_run NAME DIRECTORY PRESET REGEX [MORE TARGET...]: only what the tests of that name need is built.
build_and_run() {
  local name=$1 directory=$2 preset=$3 regex=$4 programs
  shift 4
  configure "$name" "$preset" || return 1
  mapfile -t programs < <(targets "$directory" "$regex")
  build "$name" "$directory" "$preset" "${programs[@]}" "$@" || return 1
  run_tests "$name" "$directory" -R "$regex"
}

# Tests of real programs wait much of their time. start_idle_build DIRECTORY PRESET REGEX begins a later build, on CPUs that nothing else
# wants; end_idle_build ends it where it is, before the build itself goes on. What fails here fails there again, and is shown then.
idle_build=
start_idle_build() {
  local directory=$1 preset=$2 regex=$3 programs
  cmake --preset "$preset" >/dev/null 2>&1 || return 0
  mapfile -t programs < <(targets "$directory" "$regex")
  chrt --idle 0 ninja -C "$directory" -j 1 "${programs[@]}" >/dev/null 2>&1 &
  idle_build=$!
}
end_idle_build() {
  [ -n "$idle_build" ] || return 0
  kill "$idle_build" 2>/dev/null || true  # ninja ends its compilers, and removes what they had begun
  wait "$idle_build" || true
  idle_build=
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

# Two compilers over all tests cost ten minutes more. In both builds are only those that have more to do, or to measure,
# where no sanitizer is: the simulators' and those of the attacked network.
watched='^(unit_|property$|scenarios$|conformance$|fuzz_)'
optimized='^(system_|tidy_|warm_|unit_sim|unit_net$|scenarios$)'

release_tests() {
  if [ "$mode" != full ]; then
    build release build release && run_tests release build
    return
  fi
  start_idle_build build-asan asan "$watched"
  build_and_run release build release "$optimized" programs || return 1
  step "every test runs in some build" no_test_left_out
}
no_test_left_out() { ctest --test-dir build -N -E "$watched|$optimized" | grep -x 'Total Tests: 0'; }

# simulate SEEDS WORLD [OPTION OF DTRAIN-SIM...]
simulate() {
  local last=$1
  shift
  step "simulator, world $*, seeds 1..$last" /usr/bin/python3 tests/sim/scan_seeds.py --seeds "1..$last" -- --world "$@"
}

if release_tests; then
  simulate "$cluster_seeds" cluster
  simulate "$cluster_seeds" cluster --nodes 3
  simulate "$cluster_seeds" membership
  for world in council formation lease; do simulate "$seeds" "$world"; done
fi
if [ "$mode" != quick ]; then
  end_idle_build
  build_and_run asan build-asan asan "$watched" dtrain-shim || true
fi
if [ "$mode" = soak ]; then
  build_and_run tsan build-tsan tsan '^unit_(loop|store)$' || true
  fuzz
fi

echo
printf '%s\n' "${times[@]}"
printf '%5d s  in all\n\n' "$SECONDS"
for skip in "${skips[@]}"; do
  echo "skipped: $skip"
done
for failure in "${failures[@]}"; do
  echo "failed: $failure"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
