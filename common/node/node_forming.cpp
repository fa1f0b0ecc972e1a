// What formation means for the log and for membership: a log begins or is given up, a cluster is entered.
#include <utility>

#include "common/node/node_impl.h"

namespace dtrain::node {

namespace formation = cluster::formation;

void Node::Impl::formation_durable(const formation::Persist& done) {
  if (done.begin) {
    const formation::Founding& founding = *done.begin;
    c.log.write(LogLevel::info, "cluster.founded", {{"cluster", c.options.cluster_name}, {"id", founding.cluster.text()}});
    replace_log(raft::found(formation::history_of(founding), formation::configuration_of(founding)));
    members.enter(founding.cluster);
  }
  if (done.abandon) {
    c.log.write(LogLevel::warn, "cluster.abandoned",
                {{"cluster", c.options.cluster_name}, {"reason", "the other founders formed another without this node"}});
    replace_log({});
    members.enter({});
  }
  forming.carried_out();
}

// Replaces a log of which nobody relies on anything: it was empty, or never had a majority.
void Node::Impl::replace_log(raft::Stored stored) {
  ticket = 0;
  held_sends.clear();
  early_hellos.clear();
  before_office.clear();
  own_entry = own_term = 0;
  asked_for_current = false;
  c.ledger = {};
  c.ledger.broken_rule = c.options.broken_rule;
  history.begin_anew();
  open_log(std::move(stored), std::nullopt);
  proposals.leadership_changed();
  seats.lost_leadership();
  c.replicated->step(c.now.boot, raft::Tick{});
}

// To be called at the end of a step. A log's first committed entries are its founding and the first leader's own.
void Node::Impl::take_what_is_formed() {
  if (forming.settled() || c.storage_failed) return;
  if (forming.begun()) {
    if (!forming.log_changes() && c.replicated->raft().commit() > 1) forming.established();
    return;
  }
  const MemberId to_join = forming.cluster_to_join();
  if (to_join.none()) return;
  members.ask_seeds();
  if (members.table().cluster_id() == to_join) forming.admitted(to_join);
}

// A cluster that may never work admits nobody; and a node that is to join a cluster accepts only that one's answer.
bool Node::Impl::may_hear(const gossip::Input& input) const {
  const auto* received = std::get_if<gossip::Received>(&input);
  if (received == nullptr || forming.settled()) return true;
  if (std::holds_alternative<wire::Join>(received->body)) return !forming.begun() || !received->header.cluster.none();
  if (const auto* reply = std::get_if<wire::JoinReply>(&received->body); reply != nullptr && members.holds_back())
    return !reply->refused.empty() || reply->cluster_id == forming.cluster_to_enter();
  return true;
}

}  // namespace dtrain::node
