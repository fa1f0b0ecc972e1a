#include "common/node/recovery.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "common/node/cluster_members.h"
#include "common/node/cluster_views.h"
#include "common/node/words.h"

namespace dtrain::node {
namespace {

// The state of a cluster without a coordinator.
constexpr std::string_view kMeanwhile =
    "nothing is decided; running tasks go on, but those under a lease (ps, chief, ...) stand still once it is over";

constexpr const char* kCouldNot = "could not recover the quorum: ";

tl::unexpected<Error> refused(const std::string& because, const std::string& next) {
  return fail(ErrorCode::refused, kCouldNot + because, next);
}

std::string name_of(const Context& c, const MemberId& id) {
  const auto m = c.members->table().find(id);
  return id == c.replicated->raft().id() ? c.facts.name : m ? m->identity->name : id.text();
}

struct Other {
  wire::LogReachView log;
  bool up = false;
  bool coordinates = false;
};

// The voters of the configuration in force, divided by whether they are up. A configuration of an older history
// elects nobody, however many are up.
struct Voters {
  std::vector<std::string> up, away;
  bool elect = true;
  bool majority() const { return elect && up.size() > (up.size() + away.size()) / 2; }
};
Voters voters(const Context& c) {
  Voters all;
  all.elect = c.replicated->raft().configuration().history == c.replicated->raft().history().number;
  for (const MemberId& id : c.replicated->raft().configuration().voters) {
    const auto m = c.members->table().find(id);
    const bool up = id == c.replicated->raft().id() || (m && is_up(c, m->state));
    (up ? all.up : all.away).push_back(name_of(c, id));
  }
  std::ranges::sort(all.away);  // for people; the configuration orders by random ids
  return all;
}

// The other nodes that have or had a copy of a log.
std::vector<Other> others(const Context& c) {
  std::vector<Other> all;
  const raft::Raft& raft = c.replicated->raft();
  c.members->table().each([&](const gossip::MemberView& m) {
    const CouncilFact fact = council_fact_of(m);
    const bool member = raft.configuration().has(m.identity->id);
    if (m.identity->id == raft.id() || (!member && fact.history == 0)) return;
    all.push_back({{m.identity->name, wire::to_string(m.state), member && fact.role == "member" ? "unknown" : fact.role, fact.history,
                    fact.last_term, fact.last_index},
                   is_up(c, m.state),
                   fact.coordinates()});
  });
  return all;
}

std::string reach(std::uint64_t index, std::uint64_t term) { return "entry " + std::to_string(index) + " of term " + std::to_string(term); }

// Whether `whose` is a reason against recovering here; success: it is not.
Status against(const wire::RecoveryView& here, const Other& whose, bool force) {
  if (!whose.up) return {};
  const wire::LogReachView& other = whose.log;
  if (other.history > here.history)
    return refused(other.node + " has begun history " + std::to_string(other.history) + " of this cluster already",
                   "this node follows it by itself, as soon as the coordinator there reaches it");
  if (whose.coordinates)
    return refused(other.node + " coordinates", "mend what keeps this node from it; dtrainctl nodes shows who is reached");
  if (force || other.history != here.history) return {};
  if (other.index == 0)
    return refused(other.node + " is up and has not said yet how far its log reaches",
                   "try again in a moment; --force begins the new history here all the same");
  if (std::tie(other.term, other.index) > std::tie(here.term, here.index))
    return refused("the log of " + other.node + " reaches further: to " + reach(other.index, other.term) + ", this one's to " +
                       reach(here.index, here.term),
                   "run it on " + other.node + "; --force begins the new history here, and what " + other.node + " has more is lost");
  return {};
}

}  // namespace

Result<wire::RecoveryView> recovery_view(const Context& c, bool force) {
  if (c.storage_failed)
    return fail(ErrorCode::unavailable, std::string(kCouldNot) + "the agent's disk failed",
                "run it on another survivor; or mend the disk and boot the machine");
  if (auto none = c.members->no_member("could not recover the quorum")) return fail(std::move(*none));
  const raft::Raft& raft = c.replicated->raft();
  if (!c.holds_ledger()) return refused(c.facts.name + " has no copy of the cluster's log", "run it on a voter or learner that is left");
  if (raft.mute() != raft::Mute::none)
    return refused(c.facts.name + " does not vote: " + to_string(raft.mute()), "run it on another survivor");
  if (raft.last_index() <= 1 && raft.history().number <= 1)
    return refused("the cluster's log never had a leader", "start the agents of the other founders");
  const Voters all = voters(c);
  if (c.serving || raft.role() == raft::Role::leader) return refused(c.facts.name + " coordinates", "nothing is lost");
  if (!without_leader(c)) return refused(name_of(c, raft.leader()) + " coordinates", "nothing is lost; dtrainctl status shows the cluster");
  if (all.majority())
    return refused("a majority of the voters is alive: " + joined(all.up),
                   "they elect a coordinator; stop the agent of one that will never vote again");
  wire::RecoveryView view;
  view.node = c.facts.name;
  view.history = raft.history().number;
  view.index = raft.last_index();
  view.term = raft.term_at(raft.last_index());
  view.lost = all.away;
  for (const Other& other : others(c)) {
    if (const Status good = against(view, other, force); !good) return fail(good.error());
    view.others.push_back(other.log);
  }
  return view;
}

std::string quorum_advice(const Context& c) {
  if (!c.holds_ledger()) return "";
  const std::uint64_t own = c.replicated->raft().history().number;
  const bool led = !without_leader(c);
  for (const auto& [other, up, coordinates] : others(c)) {
    if (!up || !coordinates || other.history == 0 || other.history == own) continue;
    const std::string theirs = other.node + " coordinates history " + std::to_string(other.history) + " of this cluster";
    if (!led && other.history > own) return theirs + ", begun by recover-quorum: this node follows it by itself within a minute";
    if (!led) continue;
    return theirs + ", this is history " + std::to_string(own) +
           ": recover-quorum was run while a majority was alive. Stop the agents of one side, remove their data directories and "
           "start them again: they join the other";
  }
  if (led) return "";
  const Voters all = voters(c);
  if (all.majority()) return "";
  if (!all.elect)
    return "the voters that this node knows are of a history before " + std::to_string(own) + " and elect nobody; " +
           std::string(kMeanwhile) + ". Start the agents of those that went on in history " + std::to_string(own) +
           "; if these are lost for good: dtrainctl recover-quorum on one node that is left";
  return "no majority of the voters is reached; " + std::string(kMeanwhile) + ". Start the agents of " + joined(all.away) +
         "; where they run, dtrainctl doctor says what is in the way; only if they are lost for good: dtrainctl recover-quorum on one node "
         "that is left";
}

}  // namespace dtrain::node
