// Handles clients' requests: decodes them, checks permissions, and answers at once or makes a proposal whose fate
// becomes the answer.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "common/node/access.h"
#include "common/node/checkpoint_copies.h"
#include "common/node/checkpoint_requests.h"
#include "common/node/checkups.h"
#include "common/node/context.h"
#include "common/node/coordinator.h"
#include "common/node/council_seats.h"
#include "common/node/host_logs.h"
#include "common/node/package_rights.h"
#include "common/node/packages.h"
#include "common/node/proposals.h"
#include "common/node/refusals.h"
#include "common/node/relays.h"
#include "common/node/streams.h"
#include "common/wire/control.h"

namespace dtrain::node {

inline constexpr Duration kCurrentWithin = 10s;  // how long a request about jobs waits until the copy of the ledger is current
inline constexpr std::size_t kWaitingRequests = 256;  // requests that wait for that; further ones are refused
inline constexpr std::size_t kWaitingBytes = 16 << 20;  // of these requests together: a single one may be as long as a frame
// for so long after its start an agent may not know who is alive, and recover-quorum waits
inline constexpr Duration kHeardWithin = 10s;
// how long `leave` waits until others vote and lead in this node's place; then it is refused
inline constexpr Duration kLeaveWithin = 10s;

class Requests {
 public:
  Requests(Context& context, Coordinator& coordinator, Proposals& proposals, const LedgerVersions& versions, CouncilSeats& seats,
           Streams& streams, Relays& relays, HostLogs& host_logs, Packages& packages, CheckpointRequests& checkpoints,
           CheckpointCopies& copies, Checkups& checkups)
      : c_(context), coordinator_(coordinator), proposals_(proposals), versions_(versions), seats_(seats), streams_(streams),
        relays_(relays), host_logs_(host_logs), packages_(packages), checkpoints_(checkpoints), copies_(copies), checkups_(checkups),
        rights_(context.ledger) {}

  void started() { started_ = c_.now.boot; }
  void opened(const ConnectionOpened& e) { callers_[e.connection] = e.caller; }
  void closed(ConnectionId connection);
  void handle(const Request& e);
  void blob_written(const BlobWritten& e);
  // True if the client of that connection may use this package in a job; otherwise the client must upload it first.
  bool may_have_package(ConnectionId connection, const std::string& digest) const;
  // To be called when a command was applied: answers its client.
  void applied(const cluster::Applied& result);
  // To be called when a command was not applied in time.
  void given_up(const MemberId& id);
  // To be called when nothing will be committed any more.
  void storage_failed(const Error& error);
  // For checkpoints --verify: takes the answers to VerifyCheckpoint. Returns true if the verification was asked for here.
  bool verified(const CheckpointVerified& e);
  // Answers `leave` when the record of members up to this ticket is durable or cannot be made durable.
  void members_saved(const MembersSaved& e);
  // To be called at the end of a turn, like the drive functions below: a node that waits to leave does so as soon as
  // the cluster can do without it.
  void drive_departure();
  // Answers recover-quorum once this node coordinates in the new history.
  void drive_recovery();
  // Handles requests that waited for a current ledger, or refuses them when their time is over.
  void drive_waiting();
  // Reports refusals that were held back.
  void drive_refusals();
  // To be called when a reload (SIGHUP) by that caller changed who may do what. Adds an event if there is a difference.
  void access_changed(const Access& before, const Access& after, const Caller& by);
  Instant deadline() const {
    return std::min({departures_.empty() ? kNever : departures_.front().until, waiting_.empty() ? kNever : waiting_.front().until,
                     refusals_.deadline()});
  }

 private:
  struct Pending {
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    wire::MessageType type = wire::MessageType::none;
    Caller caller;
    std::vector<std::string> warnings;
  };
  struct Verification {  // one `checkpoints --verify` under way
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    wire::CheckpointsReply reply;
    std::map<std::uint64_t, std::size_t> awaited;  // index of the view, by token
  };

  struct Waiting {  // a request that waits for a current ledger
    Request request;
    std::uint64_t applied = 0;  // the ledger must also have the entry of this index
    Instant until{};
  };
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

  void dispatch(const Request& e, const wire::Message& m, const Caller& caller);
  // Handles requests that this node cannot answer: passes them on to the coordinator, or refuses them and says where
  // to ask. A node without a copy of the ledger answers nothing about jobs; one with a copy does not answer what only
  // the coordinator knows. Returns false if this node can answer.
  bool answer_elsewhere(const Request& e, const wire::Message& m, const Caller& caller);
  void pass_on_to_coordinator(const Request& e, const wire::Message& m, const Caller& caller, const std::string& could_not,
                              const std::string& because);
  // Makes a request wait if this node's copy of the ledger may be old: no leader has told it since its start which
  // entries are committed. Returns false if the copy is current.
  bool wait_until_current(const Request& e, const wire::Message& m, const Caller& caller);
  bool is_current(std::uint64_t applied) const;
  // Refuses a relayed request that the other agent should have answered itself. Returns false if the request is in order.
  bool refuse_relayed(const Request& e, const wire::Message& m);
  void refuse_for_coordinator(const Request& e, const std::string& could_not, const std::string& because);
  // Refuses a request about a task that runs or ran on another node, whose agent has its log. Returns false if the
  // task is here.
  bool refuse_for_host(const Request& e, const std::string& could_not, const NodeId& node);
  void nodes(const Request& e, const wire::NodeName& q);
  void leave(const Request& e, const wire::LeaveRequest& q, const Caller& caller);
  // Refuses a request that only operators may make; returns false if the caller is one.
  bool refuse_non_operator(const Request& e, const Caller& caller, const std::string& could_not);
  void drain(const Request& e, const wire::DrainRequest& q, const Caller& caller);  // in requests_drain.cpp
  void form(const Request& e, const wire::FormRequest& q, const Caller& caller);
  void recover_quorum(const Request& e, const wire::RecoverRequest& q, const Caller& caller);
  void depart(ConnectionId connection, std::uint64_t request, const Caller& caller);
  void query(const Request& e, const wire::Message& m, const Caller& caller);
  void submit(const Request& e, const wire::SubmitRequest& q, const Caller& caller);
  void plan(const Request& e, const wire::SubmitRequest& q, const Caller& caller);
  void action(const Request& e, const wire::ActionRequest& q, const Caller& caller);
  void checkpoints(const Request& e, const wire::CheckpointsRequest& q, const Caller& caller);
  NodeId checkpoint_host(const cluster::CheckpointRecord& r) const;
  void exec(const Request& e, const wire::ExecRequest& q, const Caller& caller);
  void logs(const Request& e, const wire::LogsRequest& q, const Caller& caller);
  void cancel_request(const Request& e, const wire::CancelRequest& q);
  void describe(const Request& e, const std::string& name, const Caller& caller);
  Result<job::JobSpec> checked_spec(const Request& e, const std::string& bytes, const Caller& caller);
  const cluster::JobRecord* find_job(const Request& e, const std::string& name);
  // Returns the job if the caller may do `deed` to it; nullptr: an error was sent.
  const cluster::JobRecord* permitted_job(const Request& e, const std::string& name, const Caller& caller, Deed deed,
                                          const std::string& verb);
  Role role_of(const Caller& caller) const;
  void forbid(const Request& e, const Caller& caller, const Error& error);
  void note_refusal(const Caller& caller, const std::string& reason);
  void tell_refusal(const Refusals::Report& report);
  // The name of the host that the client is connected to.
  const std::string& asked_at(const Caller& caller) const;
  cluster::Asker asker(const Caller& caller) const { return {caller.user, caller.uid, asked_at(caller)}; }
  // Records a change that the ledger has no entry for as an event of this node, audit.VERB. `details` come first.
  void audit(const Caller& caller, const std::string& verb, const std::string& object, const std::string& reason,
             std::vector<cluster::EventField> details = {});
  Status may_submit(const Caller& caller) const;
  bool refuse_package(const Request& e, const Caller& caller, const std::string& digest, const std::string& could_not);
  bool room_for_proposal(const Request& e);
  void pend(const MemberId& id, const Request& e, wire::MessageType type, const Caller& caller,
            std::vector<std::string> warnings = {});
  template <class T>
  void answer(const Request& e, wire::MessageType type, const T& payload);
  void refuse(const Request& e, const Error& error);

  Context& c_;
  Coordinator& coordinator_;
  Proposals& proposals_;
  const LedgerVersions& versions_;
  CouncilSeats& seats_;
  Streams& streams_;
  Relays& relays_;
  HostLogs& host_logs_;
  Packages& packages_;
  CheckpointRequests& checkpoints_;
  CheckpointCopies& copies_;
  Checkups& checkups_;
  PackageRights rights_;
  std::map<ConnectionId, Caller> callers_;
  Refusals refusals_;
  std::map<MemberId, Pending> pending_;  // by the command's id
  std::vector<Verification> verifications_;
  std::deque<Waiting> waiting_;  // in order of time
  std::size_t waiting_bytes() const;
  std::vector<Departure> departures_;  // in order of time; one for each connection
  std::vector<Leaving> leaving_;
  std::vector<Recovering> recovering_;
  Instant started_{};
};

}  // namespace dtrain::node
