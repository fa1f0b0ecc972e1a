#include "tests/sim/lease/ledger.h"

#include <algorithm>
#include <utility>

namespace dtrain::sim::lease {
namespace {

struct Apply {
  Ledger& ledger;

  void operator()(const HostReport& report) const {
    HostRecord& host = ledger.hosts[report.host];
    if (std::pair(report.life, report.sequence) <= std::pair(host.life, host.sequence)) return;
    host.life = report.life;
    host.sequence = report.sequence;
    for (std::uint32_t task = 0; task < kTasks; ++task) {
      const Seen& seen = report.seen[task];
      TaskRecord& t = ledger.tasks[task];
      if (seen.generation == 0 || t.generation != seen.generation || t.host != report.host || t.ended) continue;
      if (t.lease == 0ns && seen.lease > 0ns) t.leased = ledger.version.index;
      t.lease = std::max(t.lease, seen.lease);
      t.attempt = std::max(t.attempt, seen.attempt);
      t.staged = t.staged || seen.staged;
      t.ended = seen.ended;
      t.why = seen.rebooted ? End::rebooted : End::reported;
    }
    if (host.lost != 0 && host.lost == report.back) host.lost = host.leases_over = 0;
  }
  void operator()(const HostLost& lost) const {
    HostRecord& host = ledger.hosts[lost.host];
    host.lost = ledger.version.index;
    host.leases_over = std::max(host.leases_over, lost.leases_over);
    for (TaskRecord& t : ledger.tasks) {
      if (t.ended || t.host != lost.host) continue;
      const bool over = t.lease > 0ns && t.leased <= host.leases_over;
      if (t.staged && !over && !lost.gone) continue;  // it may run there
      t.ended = true;
      t.why = !t.staged ? End::unbegun : lost.down ? End::grace : End::lease;
    }
  }
  void operator()(const Place& place) const {
    TaskRecord& t = ledger.tasks[place.task];
    if (!t.ended || place.generation != t.generation + 1) return;
    t = {};
    t.generation = place.generation;
    t.host = place.host;
    t.placed = ledger.version.index;
    t.ended = false;
  }
  void operator()(const Move& move) const {
    TaskRecord& t = ledger.tasks[move.task];
    t.moving = !t.ended;
  }
  void operator()(const NeedLeases&) const { ledger.needs_leases = true; }
};

}  // namespace

void apply(Ledger& ledger, const Command& command) { std::visit(Apply{ledger}, command); }

}  // namespace dtrain::sim::lease
