#include "common/node/proposals.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/check.h"
#include "common/node/cluster_members.h"

namespace dtrain::node {

using cluster::CommandType;

MemberId Proposals::add_encoded(CommandType type, std::string body, std::uint32_t needs) {
  const MemberId id{c_.rng.next(), c_.rng.next() | 1};
  commands_.push_back({id, c_.replicated->raft().commit(), type, std::move(body), needs, c_.now.boot + kAnswerWithin});
  return id;
}

std::size_t Proposals::report_room() const {
  if (extendable()) return kReportTasks - reports_.back().tasks.size();
  return reports_.size() < kReports ? kReportTasks : 0;
}

void Proposals::report(std::vector<job::TaskObservation> seen) {
  CHECK(seen.size() <= report_room());
  if (extendable()) {  // a report that was not sent yet takes them along
    auto& tasks = reports_.back().tasks;
    tasks.insert(tasks.end(), std::make_move_iterator(seen.begin()), std::make_move_iterator(seen.end()));
  } else {
    reports_.push_back({++sequence_, false, std::move(seen)});
  }
}

void Proposals::report_back(std::uint64_t lost) {
  if (!extendable()) reports_.push_back({++sequence_, false, {}});
  reports_.back().back = lost;
}

void Proposals::leadership_changed() {
  said_ = reports_said_ = 0;
  retry_ = kNever;
}

cluster::HostReport Proposals::told(const Seen& report) const {
  return {c_.facts.id, report.tasks, c_.replicated->raft().life().number, report.sequence, c_.facts.name, report.back};
}

void Proposals::log_advanced() {
  if (c_.storage_failed || !c_.replicated) return;
  if (c_.serving) propose_all();
  else forward();
}

// What the log refuses now (it is handing over, or is full) is proposed again soon.
void Proposals::propose_all() {
  if (retry_ != kNever && retry_ > c_.now.boot) return;
  retry_ = kNever;
  for (; reports_said_ < reports_.size(); ++reports_said_) {
    reports_[reports_said_].said = true;
    if (c_.propose(CommandType::report, told(reports_[reports_said_])) == 0) break;
  }
  for (; said_ < commands_.size(); ++said_) {
    const Wanted& w = commands_[said_];
    if (c_.propose_encoded(w.type, w.body, w.needs, cluster::RequestStamp{w.id.high, w.id.low, w.minted}) == 0) break;
  }
  if (reports_said_ < reports_.size() || said_ < commands_.size()) retry_ = c_.now.boot + kForwardRetry;
}

void Proposals::send(const wire::Endpoint& to, const MemberId& leader, wire::Forward forward) {
  c_.emit(SendLog{to, leader, c_.members->header(), std::move(forward)});
}

void Proposals::forward() {
  if (commands_.empty() && reports_.empty()) {
    retry_ = kNever;
    return;
  }
  const MemberId leader = c_.replicated->raft().leader();
  const bool nobody = leader.none() || leader == c_.replicated->raft().id();
  const auto member = nobody ? std::nullopt : c_.members->table().find(leader);
  if (!member) {
    retry_ = kNever;  // leadership_changed() comes first
    return;
  }
  if (retry_ <= c_.now.boot) said_ = reports_said_ = 0;
  const bool anything = (reports_said_ == 0 && !reports_.empty()) || said_ < std::min(commands_.size(), kForwards);
  if (!anything) return;
  const wire::Endpoint to = member->identity->address;
  if (reports_said_ == 0 && !reports_.empty()) {
    reports_.front().said = true;
    send(to, leader, {{}, 0, static_cast<std::uint16_t>(CommandType::report), wire::encode(told(reports_.front()))});
    reports_said_ = 1;
  }
  for (; said_ < std::min(commands_.size(), kForwards); ++said_) {
    const Wanted& w = commands_[said_];
    send(to, leader, {w.id, w.minted, static_cast<std::uint16_t>(w.type), w.body});
  }
  retry_ = c_.now.boot + kForwardRetry;
}

void Proposals::applied(const MemberId& request) {
  const auto found = std::ranges::find(commands_, request, &Wanted::id);
  if (found == commands_.end()) return;
  if (static_cast<std::size_t>(found - commands_.begin()) < said_) --said_;
  commands_.erase(found);
}

void Proposals::reported(const cluster::ReportMark& mark) {
  if (!c_.replicated || mark.life != c_.replicated->raft().life().number) return;
  while (!reports_.empty() && reports_.front().sequence <= mark.sequence) {
    reports_.pop_front();
    reports_said_ -= std::min<std::size_t>(reports_said_, 1);
  }
}

// A log of this node alone waits for its own disk, however long.
std::vector<MemberId> Proposals::give_up() {
  std::vector<MemberId> given_up;
  if (!c_.replicated || c_.replicated->alone()) return given_up;
  while (!commands_.empty() && commands_.front().expires <= c_.now.boot) {
    given_up.push_back(commands_.front().id);
    applied(given_up.back());
  }
  return given_up;
}

Instant Proposals::deadline() const {
  if (!c_.replicated || c_.replicated->alone() || commands_.empty()) return retry_;
  return std::min(retry_, commands_.front().expires);
}

}  // namespace dtrain::node
