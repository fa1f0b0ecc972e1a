#!/usr/bin/env bash
# Builds the fuzzers (preset fuzz, clang) and runs each for the given time on one core:
#   tests/fuzz/run.sh SECONDS [FUZZER...]
# New inputs stay under build-fuzz/corpus; a finding is left in build-fuzz/findings and ends the run with its status.
# A finding that was repaired belongs into tests/fuzz/corpus/<fuzzer>, where every build replays it.
set -euo pipefail

seconds=${1:?usage: tests/fuzz/run.sh SECONDS [FUZZER...]}
shift
cd "$(dirname "$0")/../.."
if [ $# -eq 0 ]; then
  set -- $(basename -s .cpp tests/fuzz/fuzz_*.cpp)
fi

cmake --preset fuzz >/dev/null
cmake --build build-fuzz --target "$@"
for fuzzer in "$@"; do
  mkdir -p "build-fuzz/corpus/$fuzzer" build-fuzz/findings
  echo "$fuzzer: $seconds s"
  # The limits are part of the check: no input may cost more memory or time.
  "build-fuzz/bin/$fuzzer" -max_total_time="$seconds" -rss_limit_mb=1024 -malloc_limit_mb=256 -timeout=10 \
    -max_len=65536 -print_final_stats=1 -verbosity=1 -artifact_prefix="build-fuzz/findings/$fuzzer-" \
    "build-fuzz/corpus/$fuzzer" "tests/fuzz/corpus/$fuzzer" 2>&1 | tail -n 40 >"build-fuzz/findings/$fuzzer.log" || true
  grep -E '^stat::number_of_executed_units|ERROR|broken invariant' "build-fuzz/findings/$fuzzer.log" || true
  if grep -qE 'ERROR|broken invariant|SUMMARY' "build-fuzz/findings/$fuzzer.log"; then
    echo "$fuzzer: a finding; see build-fuzz/findings" >&2
    exit 1
  fi
done
