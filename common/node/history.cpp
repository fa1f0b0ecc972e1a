#include "common/node/history.h"

#include <algorithm>
#include <vector>

#include "common/node/event_levels.h"

namespace dtrain::node {
namespace {

auto after(const std::deque<cluster::LedgerEvent>& events, std::uint64_t seq) {
  return std::ranges::upper_bound(events, seq, {}, &cluster::LedgerEvent::seq);
}

}  // namespace

void History::begin_anew() {
  seen_ = hooked_ = proposed_ = c_.ledger.state().next_event - 1;
  due_ = kNever;
}

bool History::applied(bool leads) {
  const auto& events = c_.ledger.events();
  const std::uint64_t newest = c_.ledger.state().next_event - 1;
  const std::uint64_t told = c_.ledger.state().told;
  const bool any = newest > seen_;
  if (leads) {
    hooked_ = proposed_ = told;
    due_ = kNever;
  }
  bool hooks = false;
  for (auto event = after(events, std::max(seen_, told)); c_.serving && event != events.end(); ++event) {
    std::vector<LogField> fields;
    for (const auto& d : event->details) fields.push_back({d.key, d.value});
    if (!event->reason.empty()) fields.push_back({"reason", event->reason});
    c_.log.write(level_of(event->type), event->type, fields);
    hooks = hooks || has_hook(*event);
  }
  seen_ = newest;
  if (!c_.serving) return any;
  for (auto event = after(events, hooked_); event != events.end() && event->seq <= told; ++event) run_hook(*event);
  hooked_ = std::max(hooked_, told);
  if (hooks) note();
  // a node that reads its log alone reports nothing again
  else if (newest > std::max(told, proposed_) && due_ == kNever && !c_.replicated->alone()) due_ = c_.now.boot + kNoteEvery;
  return any;
}

void History::tick() {
  if (c_.serving && due_ <= c_.now.boot) note();
}

void History::note() {
  due_ = kNever;
  const std::uint64_t newest = c_.ledger.state().next_event - 1;
  if (newest <= std::max(c_.ledger.state().told, proposed_)) return;
  if (c_.propose(cluster::CommandType::events_told, cluster::EventsTold{newest}) != 0) proposed_ = newest;
  else due_ = c_.now.boot + kNoteEvery;
}

bool History::has_hook(const cluster::LedgerEvent& event) const {
  const cluster::JobRecord* job = c_.ledger.find(event.job);
  if (job == nullptr || job->spec.notify.command.empty() || !event.type.starts_with("job.")) return false;
  return std::ranges::any_of(job->spec.notify.on, [&](const std::string& state) {
    return std::ranges::equal(std::string_view(event.type).substr(4), state,
                              [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b); });
  });
}

void History::run_hook(const cluster::LedgerEvent& event) {
  if (!has_hook(event)) return;
  const cluster::JobRecord& job = *c_.ledger.find(event.job);
  c_.emit(RunHook{c_.next_token(),
                  job.spec.notify.command,
                  {{"DTRAIN_JOB", job.spec.name},
                   {"DTRAIN_EVENT", event.type.substr(4)},
                   {"DTRAIN_REASON", event.reason},
                   {"DTRAIN_GENERATION", std::to_string(job.generation)}},
                  job.user,
                  Duration{0},
                  job.id});
  ran_.insert(job.id);
}

}  // namespace dtrain::node
