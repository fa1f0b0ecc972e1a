#include "common/node/forming.h"

#include <algorithm>
#include <utility>

#include "common/node/cluster_members.h"

namespace dtrain::node {
namespace {

namespace formation = cluster::formation;

constexpr std::string_view kUsualPort = ":7400";  // the port if a founder is named without one

}  // namespace

gossip::MemberRecord record_of_members(const MemberStart& start) {
  gossip::MemberRecord record = start.record;
  const formation::Record& promised = start.formation;
  if (promised.started) {
    if (record.cluster_id.none()) record.cluster_id = promised.promise.cluster;
    return record;
  }
  const bool given_up =
      std::ranges::any_of(promised.withdrawn, [&](const auto& founding) { return founding.cluster == record.cluster_id; });
  return given_up ? gossip::MemberRecord{} : record;
}

void Forming::start(const MemberStart& start) {
  if (start.founders.empty()) return;
  founders_ = start.founders;
  std::ranges::sort(founders_);
  formation::Self self;
  self.id = MemberId::parse(c_.facts.id).value_or(kNameless);
  self.founders = start.founders;
  self.name = start.founder;
  self.record = start.formation;
  // The record names a cluster that began here; its log shows whether the cluster works.
  if (!start.formation.started) self.cluster = start.found ? start.new_cluster_id : record_of_members(start).cluster_id;
  settled_ = !self.cluster.none();
  formation_.emplace(std::move(self), formation::FormationOptions{}, Rng(c_.rng.next()));
}

void Forming::network_up() {
  if (!takes_part() || std::exchange(begun_, true)) return;
  step(formation::Tick{});
}

// Prefix of a founder's report: members admit each other by their cluster's name, so a founder with another name must
// not begin a cluster with this node.
std::string Forming::mark() const { return c_.options.cluster_name + ": "; }

void Forming::received(const FormationReceived& e) {
  if (!begun_) return;
  wire::FormationReport report = e.report;
  if (report.founders.starts_with(mark())) report.founders.erase(0, mark().size());
  step(formation::Received{e.header.sender, std::move(report)});
}

void Forming::tick() {
  if (deadline() <= c_.now.boot) step(formation::Tick{});
}

Instant Forming::deadline() const { return begun_ && !c_.storage_failed ? formation_->deadline() : kNever; }

void Forming::step(const formation::Input& input) {
  if (c_.storage_failed) return;  // nothing can be promised any more
  formation::Outputs out;
  formation_->step(c_.now.boot, input, out);
  for (formation::Send& send : out.sends) {
    send.report.founders.insert(0, mark());
    c_.emit(SendFormation{founders_[send.to], c_.members->header(), std::move(send.report)});
  }
  if (out.persist) {
    Persist wanted;
    wanted.ticket = ticket_ = c_.tickets.give(this);
    wanted.formation = out.persist->record.encode();
    wanted.forget_log = out.persist->abandon;
    if (const auto& begin = out.persist->begin) {
      raft::Stored log = raft::found(formation::history_of(*begin), formation::configuration_of(*begin));
      wanted.hard = std::move(log.hard);
      wanted.append = std::move(log.log);
    }
    under_way_ = std::move(out.persist);
    c_.emit(std::move(wanted));
  }
  if (out.join) to_join_ = out.join->cluster;
  log_what_is_waited_for();
}

void Forming::persisted(std::uint64_t ticket) {
  if (ticket == ticket_) durable_ = std::exchange(under_way_, std::nullopt);
}

void Forming::established() {
  if (!begun_ || std::exchange(settled_, true)) return;
  step(formation::Established{});
}

void Forming::admitted(const MemberId& cluster) {
  if (!begun_ || std::exchange(settled_, true)) return;
  step(formation::Admitted{cluster});
}

// A founder that has promised something meanwhile joins no other cluster.
MemberId Forming::cluster_to_join() const {
  return takes_part() && !settled_ && formation_->record().promise.none() ? to_join_ : MemberId{};
}

MemberId Forming::cluster_to_enter() const {
  if (!begun()) return cluster_to_join();
  return log_changes() ? MemberId{} : formation_->cluster();
}

Status Forming::form_without(std::vector<std::string> names) {
  if (!begun_)
    return fail(ErrorCode::refused, "could not form a cluster: " + c_.facts.name + " is no founder of one",
                "name the same founders in `join` on all of them, this machine included, and their number in `expect`");
  for (std::string& name : names)
    if (std::ranges::find(founders_, name) == founders_.end() && name.ends_with(kUsualPort)) name.resize(name.size() - kUsualPort.size());
  if (auto wished = formation_->form_without(names); !wished) return wished;
  step(formation::Tick{});
  return {};
}

std::string Forming::waiting_for() const { return begun_ ? formation_->status() : ""; }

void Forming::log_what_is_waited_for() {
  std::string waits = formation_->status();
  if (waits == said_ || c_.now.boot < say_at_) return;
  say_at_ = c_.now.boot + kWaitsSaidEvery;
  if (!waits.empty()) c_.log.write(LogLevel::info, "formation.waits", {{"reason", waits}});
  said_ = std::move(waits);
}

}  // namespace dtrain::node
