// Answers `dtrainctl doctor`. This host is examined, and every member is asked how it is and how it sees this host;
// doctor.h turns all that into findings. A doctor request of another agent is answered with what is wrong here and
// with how this host sees that agent.
//
// Works in any state of a node: without a cluster, without a quorum, with a failed disk.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/node/context.h"
#include "common/node/doctor.h"
#include "common/node/part.h"
#include "common/node/relays.h"

namespace dtrain::node {

inline constexpr std::size_t kCheckups = 8;  // of clients at a time; a further one is refused
// of kCheckups, those of one user; an examination counts until it ends, even if its client has left
inline constexpr std::size_t kCheckupsOfUser = 2;
// of other agents at a time; a further one is refused. Less than kRelaysAccepted, so that logs still have room
inline constexpr std::size_t kCheckupsOfAgents = 64;
// by all checkups together; further ones wait. Less than kRelaysOpened, so that logs still have room
inline constexpr std::size_t kPeersAskedAtOnce = 32;
inline constexpr Duration kExamineWithin = 15s;  // then this host counts as hanging
// time for one member's answer from when it is asked: the member examines itself first
inline constexpr Duration kPeerAnswersWithin = 18s;
inline constexpr Duration kCheckupWithin = 25s;  // for the whole checkup: less than a client waits (dtrainctl: kAnswerTime)
// findings of one member; the sender and this host leave out further ones, and say so
inline constexpr std::size_t kPeerFindings = 64;
inline constexpr std::size_t kPeerAnswerBytes = 256 << 10;  // a member's answer; a longer one counts as no answer
inline constexpr std::size_t kFindings = 4096;              // findings of one answer; `ok` findings are left out first, then others

class Checkups final : public Part {
 public:
  Checkups(Context& context, Relays& relays) : Part(Runs::always), c_(context), relays_(relays) {}

  void begin(const Request& e, const Caller& caller);
  void examined(const Examined& e);
  void relay_answered(const RelayAnswered& e) override;
  void relay_ended(const RelayEnded& e) override;
  void closed(ConnectionId connection) override;
  void members_changed() override;
  void end_turn() override;
  Instant deadline() const override;

 private:
  struct Question {           // a question to one member
    std::uint64_t token = 0;  // of the checkup that it belongs to
    std::size_t peer = 0;     // index in Checkup::peers
    ConnectionId part = 0;
    Instant asked{};
    OwnConnection connection = {};
  };
  struct Checkup {
    ConnectionId connection = 0;  // 0: the client has left
    std::uint64_t request = 0;
    Caller caller;
    Instant began{};
    bool of_agent = false;          // another agent asks, for one of its clients
    std::optional<ExamPeer> asker;  // that agent, where it is known
    // token of the examination; 0: the checkup is another agent's and waits for the next examination
    std::uint64_t examination = 0;
    std::optional<Examination> seen;
    std::optional<Error> unseen;     // why there is no examination; the message holds the cause alone
    std::vector<PeerReport> peers;   // empty if another agent asks
    std::deque<std::size_t> to_ask;  // indices in `peers`
    std::vector<NodeId> ids;         // ids of `peers`, in the same order
  };
  using Questions = std::map<ConnectionId, Question>;

  std::optional<Error> full(const Caller& caller) const;
  void examine_for_agents();
  bool is_examined(const Checkup& checkup) const;
  void ask(std::uint64_t token, Checkup& checkup, std::size_t most);
  std::size_t open_questions(std::uint64_t token) const;
  void settle(Questions::iterator question, std::optional<Error> error);
  void drop_questions(std::uint64_t token);
  void finish(const Checkup& checkup);
  Findings of_cluster() const;
  std::optional<wire::Finding> seen_elsewhere() const;

  Context& c_;
  Relays& relays_;
  std::map<std::uint64_t, Checkup> checkups_;  // by the checkup's token
  // One examination serves all agents that asked before it began: hundreds ask at once when dtrainctl doctor is run
  // on all hosts.
  std::uint64_t for_agents_ = 0;  // token of the examination that is under way for them; 0: none
  Instant for_agents_began_{};
  Questions questions_;  // by their connections
};

}  // namespace dtrain::node
