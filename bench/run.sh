#!/usr/bin/env bash
# Measures this tree beside other programs: one JSON line per figure on stdout, everything else on stderr.
#   bench/run.sh [--quick] [NAME...]     restart recovery submit storm agent_kill idle net_attack launch launch_systemd failover gang
#                                        placement host_loss discovery verify standby; none named: all of these
#   bench/run.sh [--quick] membership    agents beside serf in clusters of 8 to 128: hours; without --quick docs/ gets the
#                                        samples and the plot (membership.py has more options)
# Builds the release programs into build/ unless DTRAIN_BIN names others. Peers that are missing are installed.
# Root measures on an ext4 file system of its own with Debian's defaults, in a file below TMPDIR: what was deleted there in the
# last minute makes creating files slow where ext4 has no journal (virtual machines), so that a run would depend on those before.
# Exit 1: something that must always hold did not, or could not be measured. A missed latency goal is no failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usual=(restart recovery gang submit storm agent_kill idle net_attack launch launch_systemd failover placement host_loss discovery
       verify standby)
known=("${usual[@]}" membership)
quick=()
names=()
for word in "$@"; do
  case "$word" in
    --quick) quick=(--quick) ;;
    -*) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *)
      if [[ " ${known[*]} " != *" $word "* ]]; then
        echo "run.sh: no measurement is called $word; there are: ${known[*]}" >&2
        exit 2
      fi
      names+=("$word")
      ;;
  esac
done
[ "${#names[@]}" -gt 0 ] || names=("${usual[@]}")

if [ -z "${DTRAIN_BIN:-}" ]; then
  ./tests/setup.sh
  targets=(dtraind dtrainctl dtrain-shim dtrain-discover first_stamp no_op status_probe submit_files submit_many runner_driver launch_pairs
           pong_probe placement_cost)
  { cmake --preset release && cmake --build build --target "${targets[@]}"; } >&2
fi
DTRAIN_BIN=$(realpath "${DTRAIN_BIN:-build/bin}")
export DTRAIN_BIN

if [ "$(id -u)" = 0 ]; then
  own=$(mktemp -d -t bench-XXXXXX)              # short: sockets are below it, whose paths have 108 bytes
  # Lazily: a measurement's last process may still hold it open.
  trap 'umount --lazy "$own" 2>/dev/null || true; rm -rf --one-file-system "$own" "$own.image"' EXIT
  truncate -s 8G "$own.image"                   # sparse
  if /sbin/mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$own.image" >&2 && mount -o loop "$own.image" "$own" >&2; then
    chmod 1777 "$own"
    export TMPDIR="$own"
  else
    echo "run.sh: could not mount a file system of its own: measuring in ${TMPDIR:-/tmp}" >&2
  fi
fi

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
memory=$(awk '/^MemTotal/ {printf "%.1f GiB", $2 / 1048576}' /proc/meminfo)
tree=$(git describe --always --dirty 2>/dev/null || echo "not known to git")
{
  echo "machine: $(nproc) CPUs ($processor), $memory, Linux $(uname -r)"
  echo "files: $(findmnt -n -o FSTYPE,SOURCE,OPTIONS -T "${TMPDIR:-/tmp}") in ${TMPDIR:-/tmp}"
  echo "load average: $(cut -d ' ' -f 1-3 /proc/loadavg)"
  echo "tree: $tree"
} >&2

failed=()
for name in "${names[@]}"; do
  options=("${quick[@]}")
  if [ "$name" = membership ] && [ "${#quick[@]}" -eq 0 ]; then options=(--publish); fi
  if [ "$name" = restart ] && [ "${#quick[@]}" -gt 0 ]; then options=(--pairs 20); fi
  echo "== $name (load average $(cut -d ' ' -f 1 /proc/loadavg))" >&2
  /usr/bin/python3 "bench/$name.py" "${options[@]}" || failed+=("$name")
done
if [ "${#failed[@]}" -gt 0 ]; then
  echo "run.sh: failed: ${failed[*]}" >&2
  exit 1
fi
