// What this node wants in the log until it sees it applied: its users' commands and its host's reports.
//
// Where this node coordinates it proposes them itself. Otherwise it forwards them to the leader that it knows, and
// again until it sees them applied in its own copy of the ledger. Commands have ids and reports have numbers, so that
// nothing is applied twice. Reports go one after the other; commands go in order of arrival.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/cluster/command.h"
#include "common/cluster/ledger.h"
#include "common/node/context.h"
#include "common/node/part.h"

namespace dtrain::node {

inline constexpr Duration kForwardRetry = 500ms;  // pause before something is forwarded again
inline constexpr Duration kAnswerWithin = 10s;    // a command that is not applied by then is given up
// Commands that were forwarded and are not applied yet; further ones wait. A link's queue holds twice as many
// messages: what does not fit there is lost and forwarded again only after kForwardRetry.
inline constexpr std::size_t kForwards = 32;
// tasks in one report, which fits in one log entry; further tasks go in the next report
inline constexpr std::size_t kReportTasks = 256;
// reports that were sent and are not applied; beyond, changes wait until report_room()
inline constexpr std::size_t kReports = 1024;

class Proposals final : public Part {
 public:
  explicit Proposals(Context& context) : Part(Runs::with_log), c_(context) {}

  // Returns the id that Ledger::apply will name. `needs`: the version of the ledger that the command needs, where the caller knows it.
  template <class T>
  MemberId add(cluster::CommandType type, const T& body, std::optional<std::uint32_t> needs = {}) {
    return add_encoded(type, wire::encode(body), needs ? *needs : cluster::version_of(type, body).value_or(cluster::kFirstVersion));
  }
  std::size_t commands() const { return commands_.size(); }
  // An empty `seen` makes a report all the same. At most report_room() observations.
  void report(std::vector<job::TaskObservation> seen);
  // Reports that all which the HostLost of that index took from this host has ended here.
  void report_back(std::uint64_t lost);
  std::size_t report_room() const;
  std::uint64_t last_report() const { return sequence_; }  // the number of the last report

  // To be called when the leader changed or is not known: everything is sent again.
  void leadership_changed();
  void log_advanced() override;  // proposes or forwards what is due
  void applied(const MemberId& request);
  void reported(const cluster::ReportMark& mark);
  // Returns commands that took too long. Nobody proposes them any more, but one that is under way may still be applied.
  std::vector<MemberId> give_up();
  Instant deadline() const override;

 private:
  struct Wanted {
    MemberId id;
    std::uint64_t minted = 0;
    cluster::CommandType type{};
    std::string body;
    std::uint32_t needs = cluster::kFirstVersion;  // of the ledger
    Instant expires{};
  };
  struct Seen {
    std::uint64_t sequence = 0;
    bool said = false;  // it was sent once: its number then stands for exactly these tasks, and it may yet be applied
    std::vector<job::TaskObservation> tasks;
    std::uint64_t back = 0;
  };

  MemberId add_encoded(cluster::CommandType type, std::string body, std::uint32_t needs);
  bool extendable() const { return !reports_.empty() && !reports_.back().said; }
  void propose_all();
  void forward();
  void send(const wire::Endpoint& to, const MemberId& leader, wire::Forward forward);
  cluster::HostReport told(const Seen& report) const;

  Context& c_;
  std::deque<Wanted> commands_;
  std::size_t said_ = 0;  // how many of commands_, from the front, were sent to this leader
  std::deque<Seen> reports_;
  std::size_t reports_said_ = 0;
  std::uint64_t sequence_ = 0;
  Instant retry_ = kNever;
};

}  // namespace dtrain::node
