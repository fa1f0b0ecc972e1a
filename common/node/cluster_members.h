// This node among the others: owns Membership, turns what it wants into effects, and keeps what clients are
// told of it.
//
// What this node says of itself (host_facts.h) is compared and announced after changes, at most every
// kFactPause, and not at all while nobody else is there. Changes of membership become lines of the log and
// events; those events are this node's own view, so they are no entries of the ledger: the newest
// kLocalEvents are kept in memory.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/gossip/membership.h"
#include "common/node/context.h"
#include "common/node/local_events.h"
#include "common/wire/view.h"

namespace dtrain::node {

inline constexpr Duration kFactPause = 100ms;  // least time between two announcements of this node's facts
inline constexpr Duration kSaveRetry = 1min;   // until a record that could not be written is tried again

class ClusterMembers {
 public:
  explicit ClusterMembers(Context& context) : c_(context) {}

  // Begins at once where there is no network, else with network_up().
  void start(const Started& e);
  void network_up();
  // Another cluster than the one it has, or than none: with its own seeds, where there are other members. None: it waits.
  void enter(const MemberId& cluster);
  // A founder asks nobody to be admitted until it is known by which cluster.
  void ask_seeds();
  bool holds_back() const { return !start_.founders.empty(); }
  void handle(const gossip::Input& input);
  void tick();
  // SIGTERM: says so to the others, once; they wait for this node.
  void stop();
  void reconfigured(const Reconfigured& e);
  void saved(const MembersSaved& e);
  // Has anybody told something else of itself since the last call?
  bool take_facts_changed() { return std::exchange(facts_changed_, false); }
  // Something that this node tells of itself may have changed.
  void touch() { touched_ = true; }
  // Something that this node did or saw of itself, for all to see: a line of the log, and an event of its own.
  void tell(const std::string& type, const std::string& reason);
  // The same of somebody's doing, or of what somebody was refused. `details` stand before the reason, in the log and in the message;
  // `replaces`: number of an earlier event that this one says again (LocalEvents); 0: none. Answers its own.
  std::uint64_t tell(LogLevel level, const std::string& type, const std::string& object, const std::vector<cluster::EventField>& details,
                     const std::string& reason, std::uint64_t replaces = 0);
  // The last thing of a step. `running`: what runs here, in order.
  using Running = std::vector<std::pair<AssignmentId, AttemptNumber>>;
  void announce(const std::function<Running()>& running);
  Instant deadline() const;

  // This node leaves for good. Answers the ticket of the record that must be durable, 0: it is already.
  // ErrorCode::refused while it belongs to no cluster. Only when may_go().
  Result<std::uint64_t> leave();
  // Why this node cannot leave whatever the others do; nothing where it can.
  std::optional<Error> bound() const;
  // Another coordinates, and the voters that are left are a majority.
  bool may_go() const;
  // A down or dead member is forgotten; or one that this node, which judges nobody, suspects while somebody coordinates; or one that
  // nobody has spoken of since this agent's start. `name`: or its id.
  Status remove(const std::string& name);
  // An operator said so (recover-quorum).
  void others_lost() { step(gossip::OthersLost{}); }

  const gossip::Membership& table() const { return *membership_; }
  // "" once a cluster has this node; else what it waits for.
  std::string waiting_for() const;
  std::string cluster_id() const;  // "" while it waits
  wire::PeerHeader header() const;  // of what this node tells others about the log; without a type
  // Why nothing of a cluster can be done here, after `could_not` ("could not submit job"); nothing where it
  // can.
  std::optional<Error> no_member(const std::string& could_not) const;
  const std::deque<wire::EventView>& local_events() const { return events_.all(); }

 private:
  void begin_membership(bool with_seeds);
  void step(const gossip::Input& input);
  void save();
  void note(const gossip::Change& change);
  wire::EventView event_now(const std::string& type, const std::string& object, const std::string& reason) const;
  wire::Identity identity() const;
  std::string own_resources();
  CouncilFact council_fact() const;
  CouncilFact council_role() const;
  void set_fact(wire::FactKey key, std::string value);
  bool alone() const;

  Context& c_;
  std::optional<gossip::Membership> membership_;
  MemberStart start_;
  std::uint64_t life_ = 0;
  bool begun_ = false;
  bool left_ = false;
  bool asks_seeds_ = false;
  std::string refused_;            // why the last one that was asked did not admit this node
  bool self_announced_ = false;    // member.alive of oneself was said
  MemberId cluster_;               // as the links were told
  std::string record_;             // the newest, as it is to be on disk
  std::uint64_t save_ticket_ = 0;  // of it
  std::uint64_t durable_ = 0;      // ticket of the newest that is on disk
  Instant retry_save_at_ = kNever;
  std::string left_out_;  // of this node's facts, as last said
  bool touched_ = true, facts_changed_ = false;
  Instant next_announcement_{};
  std::string facts_[wire::kFactKeys];  // values as last announced
  gossip::Outputs outputs_;             // of one step; kept for its memory
  LocalEvents events_;
};

// What a member says of itself; nothing where it said nothing yet, or bytes that this version cannot read.
std::optional<HostFacts> host_facts_of(const gossip::MemberView& member);
std::optional<FreeFacts> free_facts_of(const gossip::MemberView& member);
CouncilFact council_fact_of(const gossip::MemberView& member);

// Calls f(name, member) for each other one that has a copy of the log; null, and its id for a name, where nobody knows it any more.
template <class F>
void each_copy(const Context& c, F f) {
  const raft::Raft& raft = c.replicated->raft();
  const raft::Configuration& configuration = raft.configuration();
  for (const auto* ids : {&configuration.voters, &configuration.learners})
    for (const MemberId& id : *ids) {
      if (id == raft.id()) continue;
      const auto member = c.members->table().find(id);
      f(member ? member->identity->name : id.text(), member ? &*member : nullptr);
    }
}

}  // namespace dtrain::node
