// Requests that change the cluster's members or what a host is used for: leave, form, recover-quorum, drain.
#pragma once

#include <vector>

#include "common/node/callers.h"
#include "common/node/client_commands.h"
#include "common/node/council_seats.h"
#include "common/node/part.h"
#include "common/wire/view.h"

namespace dtrain::node {

inline constexpr Duration kHeardWithin = 10s;  // for so long after its start an agent may not know who is alive; recover-quorum waits
inline constexpr Duration kLeaveWithin = 10s;  // how long `leave` waits until others vote and lead in this node's place

class MemberRequests final : public Part {
 public:
  MemberRequests(Context& context, Callers& callers, ClientCommands& commands, CouncilSeats& seats)
      : Part(Runs::always), c_(context), callers_(callers), commands_(commands), seats_(seats) {}

  void started() { started_ = c_.now.boot; }
  void leave(const Request& e, const wire::LeaveRequest& q, const Caller& caller);
  void form(const Request& e, const wire::FormRequest& q, const Caller& caller);
  void recover_quorum(const Request& e, const wire::RecoverRequest& q, const Caller& caller);
  void drain(const Request& e, const wire::DrainRequest& q, const Caller& caller);

  // Answers `leave` when the record of members up to this ticket is durable or cannot be made durable.
  void saved(const MembersSaved& e);
  void storage_failed(const Error& error);
  void closed(ConnectionId connection) override;
  // A node that waits to leave does so as soon as the cluster can do without it, and
  // recover-quorum is answered once this node coordinates in the new history.
  void log_advanced() override;
  Instant deadline() const override { return departures_.empty() ? kNever : departures_.front().until; }

 private:
  struct Departure {  // one `leave` that waits until the cluster can do without this node
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    Caller caller;
    Instant until{};
  };
  struct Recovering {  // one `recover-quorum` under way
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    Caller caller;  // who asked for it
    wire::RecoveryView view;
  };
  struct Leaving {  // one `leave` that waits for its record
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    std::uint64_t ticket = 0;  // of the record of members that says that this node left
  };

  void depart(ConnectionId connection, std::uint64_t request, const Caller& caller);
  void drive_departure();
  void drive_recovery();

  Context& c_;
  Callers& callers_;
  ClientCommands& commands_;
  CouncilSeats& seats_;
  std::vector<Departure> departures_;  // in order of time; one for each connection
  std::vector<Leaving> leaving_;
  std::vector<Recovering> recovering_;
  Instant started_{};
};

}  // namespace dtrain::node
