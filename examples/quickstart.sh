#!/usr/bin/env bash
# One command on a Debian 12 machine: installs what is missing, builds, starts three agents on this machine (one cluster,
# as three hosts would), trains examples/digits with parameter servers, kills a worker, a parameter server and the agent
# that coordinates on the way, shows what healed and how fast, and leaves nothing behind.
# Exit 0: everything healed and the accuracy is above 0.9.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=$PWD/build/bin
job=digits
top=
hosts=(h1 h2 h3)
network=127.$((100 + RANDOM % 100)).$((RANDOM % 256))  # agents of other runs have other addresses
home=h1  # whose agent is asked
declare -A agents
follower=

say() { printf '\n==> %s\n' "$*"; }
give_up() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }
ctl() { at "$home" "$@"; }
at() { "$bin/dtrainctl" --agent "$top/$1/run/control.sock" "${@:2}"; }
start_agent() {
  local host=$1 address=$network.${1#h}
  local options=(--name "$host" --cluster quickstart --data-dir "$top/$host/data" --run-dir "$top/$host/run"
    --listen "$address:7400" --advertise "$address" --key-file "$top/cluster.key" --launch direct)
  if [ "$host" = h1 ]; then options+=(--found); else options+=(--join "$network.1"); fi
  if [ "$(id -u)" = 0 ]; then options+=(--set tasks.allowRoot=true); fi
  "$bin/dtraind" "${options[@]}" >>"$top/$host.log" 2>&1 &
  agents[$host]=$!
}
# pick EXPRESSION: a Python expression over the JSON document `v` on stdin.
pick() {
  /usr/bin/python3 -c '
import json, sys
print(eval(sys.argv[1], {"v": json.load(sys.stdin)}))' "$1" 2>/dev/null
}
# The time of a task's own first step line; the whole log is read, so that nobody writes into a closed pipe.
first_step() { ctl logs "$job" "$@" 2>/dev/null | awk '/ step=/ && !seen { print $1; seen = 1 }'; }
steps() { [ -n "$(first_step "$@")" ]; }
task() { ctl -o json tasks "$job" 2>/dev/null | pick "next(t for t in v if t['task'] == '$1')$2"; }
milliseconds() {  # FROM (seconds since the epoch) TO (RFC 3339)
  /usr/bin/python3 -c '
import datetime, sys
end = datetime.datetime.fromisoformat(sys.argv[2].replace("Z", "+00:00")).timestamp()
print("%.0f ms" % ((end - float(sys.argv[1])) * 1000))' "$1" "$2"
}
# await SECONDS WHAT COMMAND...: until the command succeeds.
await() {
  local end=$((SECONDS + $1)) what=$2 host
  shift 2
  until "$@"; do
    for host in "${!agents[@]}"; do
      kill -0 "${agents[$host]}" 2>/dev/null || give_up "the agent of $host ended while waiting for $what"
    done
    [ $SECONDS -lt $end ] || give_up "no $what within the time limit"
    sleep 0.05
  done
}

# Ends whatever still runs from this run's own directory: agents, shims, tasks. Asks /proc, so that nothing is missed.
end_leftovers() {
  /usr/bin/python3 - "$top" <<'PYTHON'
import os, signal, sys, time
mark, own = sys.argv[1].encode(), {os.getpid(), os.getppid()}
def ours():
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as a, open("/proc/%d/environ" % pid, "rb") as b:
                if pid not in own and (mark in a.read() or mark in b.read()):
                    yield pid
        except OSError:
            continue
for _ in range(50):
    found = list(ours())
    if not found:
        break
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    time.sleep(0.1)
PYTHON
}

clean_up() {
  local status=$?
  trap - EXIT
  trap '' INT TERM
  if [ -n "$top" ]; then
    if [ $status -ne 0 ] && [ -s "$top/$home.log" ]; then
      printf '\nThe last lines of the agent of %s:\n' "$home" >&2
      tail -n 20 "$top/$home.log" >&2
    fi
    if [ -n "$follower" ]; then
      disown "$follower" 2>/dev/null || true
      kill -TERM "$follower" 2>/dev/null || true
    fi
    if [ ${#agents[@]} -gt 0 ]; then
      ctl --timeout 5s delete "$job" --force >/dev/null 2>&1 || true
      disown "${agents[@]}" 2>/dev/null || true
      kill -TERM "${agents[@]}" 2>/dev/null || true
      for _ in {1..50}; do
        kill -0 "${agents[@]}" 2>/dev/null || break
        sleep 0.1
      done
    fi
    end_leftovers
    rm -rf "$top"
  fi
  exit $status
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "Packages (.ci/packages)"
./tests/setup.sh
echo "all installed"

say "Build in build/ (the first time takes a few minutes)"
top=$(mktemp -d /tmp/dtrain-quickstart.XXXXXX)
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1  # objects compiled in another checkout are found again
if ! { cmake --preset release && cmake --build build --target dtraind dtrainctl dtrain-shim; } >"$top/build.log" 2>&1; then
  tail -n 40 "$top/build.log" >&2
  give_up "the build failed"
fi
ctl version 2>/dev/null || give_up "dtrainctl does not run"

say "Start three agents: dtraind --found on h1, dtraind --join h1 on h2 and h3, one key"
"$bin/dtrainctl" keygen "$top/cluster.key" >/dev/null
for host in "${hosts[@]}"; do start_agent "$host"; done
three_voters() {
  local host
  for host in "${hosts[@]}"; do
    [ "$(at "$host" --timeout 2s -o json status 2>/dev/null |
      pick "len(v['quorum']['voters']) if v['coordinator'] else 0")" = 3 ] || return 1
  done
}
await 60 "council of three" three_voters
ctl status

say "Train: dtrainctl run examples/digits/job.yaml (1 chief, 2 parameter servers, 2 workers)"
began=$EPOCHREALTIME
# STATUS lines say what the log lines say: one of the two is enough here.
ctl run --set "spec.checkpoint.dir=$top/checkpoints" examples/digits/job.yaml </dev/null \
  > >(sed -u -e '/: STATUS /d' -e 's/^/    | /') 2>&1 &
follower=$!
good_checkpoints() {
  local count
  count=$(ctl -o json checkpoints "$job" 2>/dev/null | pick "sum(c['state'] in ('complete', 'verified') for c in v)") || return 1
  [ "${count:-0}" -ge "$1" ]
}
await 60 "second checkpoint" good_checkpoints 2

victim="worker-1"
pid=$(task $victim "['pid']")
address=$(task $victim "['address']")
say "Kill a worker: kill -9 $pid ($victim)"
killed=$EPOCHREALTIME
kill -9 "$pid"
worker_back() { [ "$(task $victim "['attempt']")" = 2 ] && [ "$(task $victim "['state']")" = Running ]; }
await 30 "second attempt of $victim" worker_back
await 30 "step of $victim's second attempt" steps $victim --attempt 2
[ "$(task $victim "['address']")" = "$address" ] || give_up "$victim came back at another address"
stepped=$(first_step $victim --attempt 2)
started=$(task $victim "['started_at']")
generation=$(ctl -o json jobs | pick "next(j for j in v if j['name'] == '$job')['generation']")
[ "$generation" = 1 ] || give_up "a worker's death began generation $generation"
worker_healed="started again after $(milliseconds "$killed" "$started"), first step after $(milliseconds "$killed" "$stepped")"
worker_healed+=", same address $address, still generation $generation"
echo "$victim: $worker_healed"

await 60 "fourth checkpoint" good_checkpoints 4
victim=ps-0
pid=$(task $victim "['pid']")
say "Kill a parameter server: kill -9 $pid ($victim)"
killed=$EPOCHREALTIME
kill -9 "$pid"
second_generation() {
  [ "$(ctl -o json jobs 2>/dev/null | pick "[(j['generation'], j['state']) for j in v]")" = "[(2, 'Running')]" ]
}
await 60 "second generation" second_generation
slowest=
for worker in worker-0 worker-1; do
  attempt=$(task $worker "['attempt']")
  await 60 "step of $worker" steps $worker --attempt "$attempt"
  stepped=$(first_step $worker --attempt "$attempt")
  if [[ "$stepped" > "$slowest" ]]; then slowest=$stepped; fi
done
restored=$(ctl -o json describe job "$job" | pick "v['restored']['path'].rsplit('/', 1)[-1]")
ps_healed="every worker stepped again after $(milliseconds "$killed" "$slowest"), in generation 2, from $restored"
echo "$victim: $ps_healed"

coordinator() { at "$1" -o json status 2>/dev/null | pick "v['coordinator']['node']"; }
pids() { at "$1" -o json tasks "$job" 2>/dev/null | pick "sorted((t['task'], t['pid']) for t in v if t['state'] == 'Running')"; }
victim=$(coordinator h1)
[ "$victim" = h1 ] || give_up "$victim coordinates, and not h1, which founded the cluster"
home=h2
before=$(pids h2)
say "Kill the coordinator: kill -9 ${agents[$victim]} (dtraind of $victim), and submit at $home"
killed=$EPOCHREALTIME
disown "${agents[$victim]}"
kill -9 "${agents[$victim]}"
unset "agents[$victim]"
acknowledged() { ctl submit examples/hello/job.yaml >/dev/null 2>&1; }
await 30 "acknowledged submit" acknowledged
now=$EPOCHREALTIME
successor=$(coordinator h2)
took=$(/usr/bin/python3 -c 'import sys; print("%.0f ms" % ((float(sys.argv[2]) - float(sys.argv[1])) * 1000))' "$killed" "$now")
start_agent "$victim"
returned() { at "$victim" --timeout 2s status >/dev/null 2>&1; }
await 30 "answer of $victim" returned
[ "$(pids h2)" = "$before" ] || give_up "tasks were touched: $before, now $(pids h2)"
coordinator_healed="next submit acknowledged after $took, $successor coordinates; no process of the training was touched"
echo "$victim: $coordinator_healed"
ctl --timeout 30s wait hello --for Succeeded >/dev/null

say "Wait for the end"
status=0
wait "$follower" || status=$?
follower=
[ $status -eq 0 ] || give_up "dtrainctl run ended with exit code $status"
seconds=$(/usr/bin/python3 -c 'import sys; print("%.1f" % (float(sys.argv[2]) - float(sys.argv[1])))' "$began" "$EPOCHREALTIME")
home=h1  # whose host ran it
accuracy=$(ctl logs "$job" chief-0 | sed -n 's/^accuracy=//p' | tail -n 1)

say "What happened (dtrainctl events $job)"
ctl events "$job"
say "Result"
ctl jobs
echo
echo "worker killed:           $worker_healed"
echo "parameter server killed: $ps_healed"
echo "coordinator killed:      $coordinator_healed"
echo "trained in $seconds s, all three deaths included; accuracy=$accuracy on images never trained on"
/usr/bin/python3 -c 'import sys; sys.exit(0 if float(sys.argv[1] or 0) > 0.9 else 1)' "$accuracy" ||
  give_up "the accuracy is not above 0.9"
