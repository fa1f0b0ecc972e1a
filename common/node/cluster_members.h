// This node among the others: owns Membership, turns its outputs into effects, and keeps what clients are told of it.
//
// This node's facts (host_facts.h) are compared and announced after changes, at most once in kFactPause, and not at
// all while there is no other member. Changes of membership become lines of the log and events. Those events are this
// node's own view and no entries of the ledger: the newest kLocalEvents of them are kept in memory.
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
#include "common/node/part.h"
#include "common/wire/view.h"

namespace dtrain::node {

inline constexpr Duration kFactPause = 100ms;  // least time between two announcements of this node's facts
inline constexpr Duration kSaveRetry = 1min;   // pause before a record that could not be written is written again

class ClusterMembers final : public Part {
 public:
  explicit ClusterMembers(Context& context) : Part(Runs::always), c_(context) {}

  // Membership begins at once where there is no network, else with network_up().
  void start(const Started& e);
  void network_up();
  // Enters another cluster than the present one, or than none, and asks this node's seeds where there are other
  // members. An empty id: this node waits for a cluster.
  void enter(const MemberId& cluster);
  // Begins to ask seeds for admission. A founder does so only once it knows which cluster it belongs to.
  void ask_seeds();
  bool holds_back() const { return !start_.founders.empty(); }
  void handle(const gossip::Input& input);
  void tick() override;
  // On SIGTERM: tells the others once that this agent stops; they wait for it to come back.
  void stop();
  void reconfigured(const Reconfigured& e);
  void saved(const MembersSaved& e);
  // Has anybody told something else of itself since the last call?
  bool take_facts_changed() { return std::exchange(facts_changed_, false); }
  // To be called when a fact of this node may have changed.
  void touch() { touched_ = true; }
  // Reports something that this node did or saw of itself: writes a line of the log and adds an event of this node.
  void tell(const std::string& type, const std::string& reason);
  // Reports what somebody did or was refused. `details` stand before the reason, in the log and in the message. `replaces`:
  // number of an earlier event that this one supersedes (LocalEvents); 0: none. Returns the number of the new event.
  std::uint64_t tell(LogLevel level, const std::string& type, const std::string& object, const std::vector<cluster::EventField>& details,
                     const std::string& reason, std::uint64_t replaces = 0);
  // To be called last in each step. `running` returns what runs here, in order.
  using Running = std::vector<std::pair<AssignmentId, AttemptNumber>>;
  void announce(const std::function<Running()>& running);
  Instant deadline() const override;

  // This node leaves for good; to be called only when may_go(). Returns the ticket of the record that must become
  // durable, or 0 if it is durable already. ErrorCode::refused while this node belongs to no cluster.
  Result<std::uint64_t> leave();
  // Why this node cannot leave, whatever the others do; nullopt where it can.
  std::optional<Error> bound() const;
  // True if another node coordinates and the remaining voters are a majority.
  bool may_go() const;
  // Forgets a member, by its name or id. Permitted for a member that is down or dead; for one that this node suspects while
  // somebody coordinates, if this node judges nobody; and for one that nobody has spoken of since this agent's start.
  Status remove(const std::string& name);
  // An operator said that the other voters are lost (recover-quorum).
  void others_lost() { step(gossip::OthersLost{}); }

  const gossip::Membership& table() const { return *membership_; }
  // What this node waits for before it belongs to a cluster; "" once it does.
  std::string waiting_for() const;
  std::string cluster_id() const;   // "" while this node belongs to no cluster
  wire::PeerHeader header() const;  // of this node's messages about the log; the type is to be filled in
  // Why this node can do nothing for a cluster, with `could_not` ("could not submit job") in front; nullopt where it can.
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
  std::string refused_;            // why the seed that was asked last did not admit this node
  bool self_announced_ = false;    // member.alive of this node itself was reported
  MemberId cluster_;               // as the links were last told
  std::string record_;             // the newest record of members, as it is to be on disk
  std::uint64_t save_ticket_ = 0;  // ticket of the newest SaveMembers
  std::uint64_t durable_ = 0;      // ticket of the newest record that is on disk
  Instant retry_save_at_ = kNever;
  std::string left_out_;  // facts that were left out of the announcement, as last reported
  bool touched_ = true, facts_changed_ = false;
  Instant next_announcement_{};
  std::string facts_[wire::kFactKeys];  // values as last announced
  gossip::Outputs outputs_;             // of one step; a member so that its memory is reused
  LocalEvents events_;
};

// What a member says of itself; nullopt (or a default CouncilFact) where it said nothing yet or said what this
// version cannot read.
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
