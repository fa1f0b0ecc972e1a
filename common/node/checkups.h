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

inline constexpr std::size_t kCheckups = 8;          // at a time, of clients and of other agents: a further one is refused
inline constexpr std::size_t kPeersAskedAtOnce = 32;  // of one checkup; the others wait
inline constexpr Duration kExamineWithin = 15s;      // then this host counts as hanging
inline constexpr Duration kPeerAnswersWithin = 18s;  // a member, from when it is asked: it examines itself first
inline constexpr Duration kCheckupWithin = 25s;      // all of it: less than a client waits (dtrainctl: kAnswerTime)
inline constexpr std::size_t kPeerFindings = 64;     // of one member; further ones are left out, and it says so
inline constexpr std::size_t kFindings = 4096;       // of all: first what is well is left out, then likewise

class Checkups {
 public:
  Checkups(Context& context, Relays& relays) : c_(context), relays_(relays) {}

  void begin(const Request& e);
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
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    Instant began{};
    std::optional<ExamPeer> asker;   // another agent
    std::optional<Examination> seen;
    std::vector<PeerReport> peers;   // none of another agent's
    std::deque<std::size_t> to_ask;  // of peers
    std::vector<NodeId> ids;         // of peers
  };
  using Questions = std::map<ConnectionId, Question>;

  void ask(std::uint64_t token, Checkup& checkup);
  std::size_t open_questions(std::uint64_t token) const;
  void settle(Questions::iterator question, std::optional<Error> error);
  void drop_questions(std::uint64_t token);
  void finish(const Checkup& checkup);
  Findings of_cluster() const;
  std::optional<wire::Finding> seen_elsewhere() const;

  Context& c_;
  Relays& relays_;
  std::map<std::uint64_t, Checkup> checkups_;  // by token
  Questions questions_;                        // by their own connection
};

}  // namespace dtrain::node
