// Decides who votes. The leader asks for the next change of the council and proposes it to the log, which decides
// (raft: one change at a time).
//
// The size of the council follows the number of members that neither left nor were forgotten; a death never shrinks
// it. (If fewer members may vote, the council has the next smaller odd size.) A seat that a death or departure left
// empty stays empty until another candidate has caught up: a council of 2 of 3 or of 4 of 5 survives exactly as many
// further losses as the larger one with a dead voter, so shrinking it would gain nothing. It stays at 2 or 4 only
// while candidates are missing.
//
// Of the members that do not vote, standing_learners have a copy of the log, so that small clusters are ready for
// anything. Further learners are added only if they need a copy, up to kMostLearners, because a host acts by its
// copy. They keep it (a host answers for its logs and checkpoints by its copy) until others need the room; a host
// with tasks is never removed from the log unless it left.
//
// Pure: the same view gives the same answer. docs/consensus.md gives the reasons for the rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/member_id.h"
#include "common/base/time.h"
#include "common/raft/raft.h"
#include "common/wire/gossip.h"

namespace dtrain::cluster {

struct CouncilOptions {
  // A voter that was not heard for so long is replaced. Longer than a host takes to reboot (CockroachDB waits the
  // same five minutes, server.time_until_store_dead).
  Duration replace_after = 5min;
  Duration heard_within = 3s;        // a member that was silent for longer counts as absent
  Duration proven_after = 1min;      // members that have been alive for so long are preferred
  std::uint64_t caught_up_lag = 16;  // entries behind the leader; raft::RaftOptions::promote_lag
  // Learners beyond this number are added only if they need a copy: each hears the leader twice a second.
  std::size_t standing_learners = 16;
  Duration look_while_busy = 200ms;  // until the next look while something is awaited
  Duration look_at_rest = 5s;
};

struct CouncilMember {
  using State = wire::MemberState;  // left: or forgotten
  MemberId id;
  std::string name;
  std::string zone;  // its label; "": none
  State state{};
  Instant since{};       // since when it is in that state
  bool never = false;    // `council: never`
  bool busy = false;     // it needs a copy: it has tasks that have not ended, or must learn that it was counted as lost
  bool too_old = false;  // its program cannot read the log: it gets no copy, and cannot use one that it has
};

// What the leader sees, with times by its own clock.
struct CouncilView {
  MemberId self;
  raft::Configuration configuration;  // the configuration in force
  std::vector<raft::FollowerView> followers;
  std::uint64_t last_index = 0;  // of the leader's log
  // All members that were admitted to the cluster, the leader included. A member that is missing here (gossip forgets
  // one that was dead for days) does not count, unless the configuration has it.
  std::vector<CouncilMember> members;
};

struct CouncilStep {
  enum class Act : std::uint8_t {
    nothing,
    change,    // raft::ChangeAsked{change, member}
    transfer,  // raft::TransferAsked{member}: the leader itself is to leave the council
  };
  Act act{};
  raft::ChangeKind change{};
  MemberId member;
  std::string why;  // what is done or awaited, for people; "": nothing
  Instant again{};  // when to ask again if nothing happens before
  bool rests() const { return act == Act::nothing && why.empty(); }
};

// The council's size in a cluster of so many members: 1, 3 or 5.
std::uint32_t council_size(std::size_t members);

// Returns the next step. To be called after every change of the view, and at `again`, only while this node leads, is
// ready and has no unanswered ChangeAsked. After a refusal by raft, call it again.
CouncilStep next_council_step(const CouncilView& view, Instant now, const CouncilOptions& options);

// True if no other member has the log, so that one disk may lose what was acknowledged. `submit` warns of it.
bool one_disk_holds_everything(const CouncilView& view, const CouncilOptions& options);

}  // namespace dtrain::cluster
