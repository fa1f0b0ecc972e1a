// `dtrainctl doctor`: this host is examined, and every member is asked how it is and how it sees this one; what is found of all
// that (doctor.h) is the answer. Another agent's doctor is answered with what is wrong here, and with how this host sees it.
//
// Works in any state of a node: without a cluster, without a quorum, with a disk that failed.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/node/context.h"
#include "common/node/doctor.h"
#include "common/node/relays.h"

namespace dtrain::node {

inline constexpr std::size_t kCheckups = 8;          // at a time, of clients: a further one is refused
inline constexpr std::size_t kCheckupsOfUser = 2;    // of them of one user: likewise; also while the examination of one who went lasts
inline constexpr std::size_t kCheckupsOfAgents = 64;  // at a time, of other agents: likewise; less than kRelaysAccepted, so that logs go on
inline constexpr std::size_t kPeersAskedAtOnce = 32;  // by all checkups together; the others wait. Less than kRelaysOpened, likewise
inline constexpr Duration kExamineWithin = 15s;      // then this host counts as hanging
inline constexpr Duration kPeerAnswersWithin = 18s;  // a member, from when it is asked: it examines itself first
inline constexpr Duration kCheckupWithin = 25s;      // all of it: less than a client waits (dtrainctl: kAnswerTime)
inline constexpr std::size_t kPeerFindings = 64;     // of one member; further ones are left out, there and here, and that is said
inline constexpr std::size_t kPeerAnswerBytes = 256 << 10;  // of one member; a longer answer is none
inline constexpr std::size_t kFindings = 4096;       // of all: first what is well is left out, then likewise

class Checkups {
 public:
  Checkups(Context& context, Relays& relays) : c_(context), relays_(relays) {}

  void begin(const Request& e, const Caller& caller);
  void examined(const Examined& e);
  void answered(const RelayAnswered& e);
  void ended(const RelayEnded& e);
  void closed(ConnectionId connection);
  void members_changed();
  // Before the end of each turn.
  void drive();
  Instant deadline() const;

 private:
  struct Question {  // to one member
    std::uint64_t token = 0;   // of its checkup
    std::size_t peer = 0;      // index in Checkup::peers
    ConnectionId part = 0;
    Instant asked{};
  };
  struct Checkup {
    ConnectionId connection = 0;     // 0: whoever asked went
    std::uint64_t request = 0;
    Caller caller;
    Instant began{};
    bool of_agent = false;           // another one asks, for a client of it
    std::optional<ExamPeer> asker;   // that one, where it is known
    std::uint64_t examination = 0;   // its token; 0: an agent's, which waits for the next one
    std::optional<Examination> seen;
    std::optional<Error> unseen;     // why there is none; the message is the cause alone
    std::vector<PeerReport> peers;   // none of another agent's
    std::deque<std::size_t> to_ask;  // of peers
    std::vector<NodeId> ids;         // of peers
  };
  using Questions = std::map<ConnectionId, Question>;

  std::optional<Error> full(const Request& e, const Caller& caller) const;
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
  std::map<std::uint64_t, Checkup> checkups_;  // by a token of their own
  // One examination at a time serves all agents that asked before it began: they come by the hundred when dtrainctl doctor is run
  // on all hosts.
  std::uint64_t for_agents_ = 0;               // under way; 0: none
  Instant for_agents_began_{};
  Questions questions_;                        // by their own connection
};

}  // namespace dtrain::node
