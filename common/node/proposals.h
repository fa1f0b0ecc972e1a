// What this node wants in the log and cannot see applied yet: its users' commands and its host's reports.
//
// Where this node coordinates it proposes them itself; else it sends them to the leader that it knows, and again until
// it sees them applied in its own copy of the ledger. A command has an id and a report a number, so that nothing is
// applied twice. Reports go one after the other, commands in the order in which they came.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "common/cluster/command.h"
#include "common/cluster/ledger.h"
#include "common/node/context.h"

namespace dtrain::node {

inline constexpr Duration kForwardRetry = 500ms;  // until what was sent to the leader is sent again
inline constexpr Duration kAnswerWithin = 10s;    // a command that is not applied by then is given up
// Commands sent to the leader and not applied; further ones wait. A link has room for twice as many messages: what finds none there
// is lost, and said again only after kForwardRetry.
inline constexpr std::size_t kForwards = 32;
inline constexpr std::size_t kReportTasks = 256;  // in one report, which fits in an entry; further ones go in the next
inline constexpr std::size_t kReports = 1024;     // said and not applied; what changes meanwhile waits in report_room()

class Proposals {
 public:
  explicit Proposals(Context& context) : c_(context) {}

  // Answers the id that Ledger::apply will tell.
  template <class T>
  MemberId add(cluster::CommandType type, const T& body) {
    return add_encoded(type, wire::encode(body));
  }
  std::size_t commands() const { return commands_.size(); }
  // `seen` may be empty: a report all the same. At most report_room() of them.
  void report(std::vector<job::TaskObservation> seen);
  // What HostLost of that index took from this host has ended here.
  void report_back(std::uint64_t lost);
  std::size_t report_room() const;
  std::uint64_t last_report() const { return sequence_; }  // its number

  // Another leader, or none: everything is said again.
  void leadership_changed();
  // At the end of a turn: proposes or sends what is due.
  void drive();
  void applied(const MemberId& request);
  void reported(const cluster::ReportMark& mark);
  // Commands that took too long: nobody proposes them any more, though one may be applied yet.
  std::vector<MemberId> give_up();
  Instant deadline() const;

 private:
  struct Wanted {
    MemberId id;
    std::uint64_t minted = 0;
    cluster::CommandType type{};
    std::string body;
    Instant expires{};
  };
  struct Seen {
    std::uint64_t sequence = 0;
    bool said = false;  // to anybody, ever: that number means these tasks, and may be applied yet
    std::vector<job::TaskObservation> tasks;
    std::uint64_t back = 0;
  };

  MemberId add_encoded(cluster::CommandType type, std::string body);
  bool propose(cluster::CommandType type, const std::string& body, std::optional<cluster::RequestStamp> request);
  bool extendable() const { return !reports_.empty() && !reports_.back().said; }
  void propose_all();
  void forward();
  void send(const wire::Endpoint& to, const MemberId& leader, wire::Forward forward);
  std::string encoded(const Seen& report) const;

  Context& c_;
  std::deque<Wanted> commands_;
  std::size_t said_ = 0;  // of commands_, from the front: to this leader
  std::deque<Seen> reports_;
  std::size_t reports_said_ = 0;
  std::uint64_t sequence_ = 0;
  Instant retry_ = kNever;
};

}  // namespace dtrain::node
