// Handles requests of clients and of other agents: does what the row of each verb (verbs.h) says. A request is refused, passed on, made to
// wait, or decoded and given to its handler.
#pragma once

#include <algorithm>
#include <deque>
#include <string>
#include <tuple>

#include "common/node/callers.h"
#include "common/node/context.h"
#include "common/node/ledger_versions.h"
#include "common/node/part.h"
#include "common/node/relays.h"
#include "common/node/verbs.h"

namespace dtrain::node {

class CheckpointCopies;
class CheckpointQueries;
class CheckpointRequests;
class Checkups;
class ClientCommands;
class JobRequests;
class MemberRequests;
class PackageRequests;
class Packages;
class StreamRequests;
class ViewRequests;

inline constexpr Duration kCurrentWithin = 10s;         // how long a request about jobs waits until the copy of the ledger is current
inline constexpr std::size_t kWaitingRequests = 256;    // requests that wait for that; further ones are refused
inline constexpr std::size_t kWaitingBytes = 16 << 20;  // of these requests together: a single one may be as long as a frame

class Requests final : public Part {
 public:
  // The objects whose handlers the rows name.
  using Parts = std::tuple<Context&, Callers&, StreamRequests&, Packages&, CheckpointRequests&, Checkups&, CheckpointQueries&,
                           MemberRequests&, ClientCommands&, PackageRequests&, JobRequests&, ViewRequests&, CheckpointCopies&>;
  Requests(Context& context, Callers& callers, Relays& relays, const LedgerVersions& versions, Parts parts)
      : Part(Runs::always), c_(context), callers_(callers), relays_(relays), versions_(versions), parts_(parts) {}

  void handle(const Request& e);
  void closed(ConnectionId connection) override;
  // Handles requests that waited for a current ledger, or refuses them when their time is over.
  void log_advanced() override;
  Instant deadline() const override { return waiting_.empty() ? kNever : waiting_.front().until; }

  // ---- for the rows
  template <class P>
  P& part() {
    return std::get<P&>(parts_);
  }
  // Returns true if this node is to answer the request now. Otherwise the request was refused, passed on or made to wait, by that rule.
  bool answers_now(const Asked& asked, const Rule& rule);
  // Refuses a request if the row demands a higher role than the caller's. Returns false if the role is enough.
  bool refuse_role(const Asked& asked);
  void refuse(const Request& e, const Error& error);

 private:
  struct Waiting {  // a request that waits for a current ledger
    Request request;
    std::uint64_t applied = 0;  // the ledger must also have the entry of this index
    Instant until{};
  };

  // Refuses a relayed request that the other agent should have answered itself, and one of a client that only agents may
  // ask. Returns false if the request is in order.
  bool refuse_relayed(const Asked& asked, const Rule& rule);
  // Handles requests that this node cannot answer: passes them on to the coordinator, or refuses them and says where
  // to ask. A node without a copy of the ledger answers nothing about jobs; one with a copy does not answer what only
  // the coordinator knows. Returns false if this node can answer.
  bool answer_elsewhere(const Asked& asked, const Rule& rule);
  void pass_on_to_coordinator(const Asked& asked, const Rule& rule, const std::string& could_not, const std::string& because);
  // Makes a request wait if this node's copy of the ledger may be old: no leader has told it since its start which
  // entries are committed. Returns false if the copy is current.
  bool wait_until_current(const Asked& asked, const Rule& rule);
  bool is_current(std::uint64_t applied) const;
  std::size_t waiting_bytes() const;

  Context& c_;
  Callers& callers_;
  Relays& relays_;
  const LedgerVersions& versions_;
  Parts parts_;
  std::deque<Waiting> waiting_;  // in order of time
};

}  // namespace dtrain::node
