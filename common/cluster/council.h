// Who votes. The leader asks this what the next change of the council should be, and proposes it to the log,
// which decides (raft: one change at a time).
//
// The size follows the number of members, counted over all that neither left nor were forgotten: a death
// never shrinks the council. (Of those who may vote there must be as many, or it is the next smaller odd
// size.) A seat that a death or a departure left empty stays empty until another candidate has caught up: a
// council of 2 of 3 or of 4 of 5 survives exactly as many further losses as the larger one with a dead voter
// would, so nothing is gained by shrinking it. 2 and 4 rest only while candidates are missing.
//
// Of those who do not vote, standing_learners have a copy of the log, so that small clusters are ready for anything. Beyond them only
// who needs one is added, as far as kMostLearners go: a host acts by its copy. It keeps it (there lie logs and checkpoints of what ran,
// for which it answers by its copy) until others need the room; who has tasks is never taken out of the log, unless it left.
//
// Pure: the same view gives the same answer. docs/consensus.md says why the rules are these.
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
  // A voter that was not heard for so long is replaced: longer than a host takes to reboot (CockroachDB takes
  // the same five minutes, server.time_until_store_dead).
  Duration replace_after = 5min;
  Duration heard_within = 3s;        // who was silent for longer is not there now
  Duration proven_after = 1min;      // members alive for so long are preferred
  std::uint64_t caught_up_lag = 16;  // entries behind the leader; raft::Options::promote_lag
  // Further learners are added only where they are needed: each hears the leader twice a second.
  std::size_t standing_learners = 16;
  Duration look_while_busy = 200ms;  // until the next look while something is waited for
  Duration look_at_rest = 5s;
};

struct CouncilMember {
  using State = wire::MemberState;  // left: or forgotten
  MemberId id;
  std::string name;
  std::string zone;  // its label; "": none
  State state{};
  Instant since{};     // of that state
  bool never = false;  // `council: never`
  bool busy = false;     // it needs a copy: tasks placed there have not ended, or it is to hear that it was counted as lost
  bool too_old = false;  // its program cannot read the log: it is given no copy; one that it has it cannot use
};

// What the leader sees. Its clock is that of `now`.
struct CouncilView {
  MemberId self;
  raft::Configuration configuration;  // in force
  std::vector<raft::FollowerView> followers;
  std::uint64_t last_index = 0;  // of the leader's log
  // Everybody who was admitted to the cluster, oneself included. Who is left out (gossip reaps the row of one
  // that was dead for days) is not counted, unless the configuration has it.
  std::vector<CouncilMember> members;
};

struct CouncilStep {
  enum class Act : std::uint8_t {
    nothing,
    change,    // raft::ChangeAsked{change, member}
    transfer,  // raft::TransferAsked{member}: the leader itself is to go
  };
  Act act{};
  raft::ChangeKind change{};
  MemberId member;
  std::string why;  // for people: what is done, or waited for; "" at rest
  Instant again{};  // when to ask again if nothing happens before
  bool rests() const { return act == Act::nothing && why.empty(); }
};

// Of a cluster of so many members: 1, 3 or 5.
std::uint32_t council_size(std::size_t members);

// Ask after every change of the view, and at `again`; only while this node leads, is ready and has no
// unanswered ChangeAsked. A refusal by raft means: ask again.
CouncilStep next_council_step(const CouncilView& view, Instant now, const CouncilOptions& options);

// What is acknowledged may be lost with one disk: no other member has the log. `submit` warns of it.
bool one_disk_holds_everything(const CouncilView& view, const CouncilOptions& options);

}  // namespace dtrain::cluster
