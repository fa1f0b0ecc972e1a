// What clients ask: decoded, permitted, answered at once or turned into a proposal whose fate is the answer.
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

inline constexpr Duration kCurrentWithin = 10s;  // a request about jobs waits so long for a copy of the ledger that is not old
inline constexpr std::size_t kWaitingRequests = 256;  // for that; further ones are refused
inline constexpr std::size_t kWaitingBytes = 16 << 20;  // of them together: a single one may be as long as a frame
inline constexpr Duration kHeardWithin = 10s;  // of its start an agent may not have heard yet who is alive: recover-quorum waits
inline constexpr Duration kLeaveWithin = 10s;  // until others vote and lead in the place of one that leaves; then: refused

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
  // May who called there name this package in a job? Who may not is to give it first.
  bool may_have_package(ConnectionId connection, const std::string& digest) const;
  // A command was applied: the client whose it is is answered.
  void applied(const cluster::Applied& result);
  // Nobody could carry it out in time.
  void given_up(const MemberId& id);
  // Nothing will be committed any more.
  void storage_failed(const Error& error);
  // checkpoints --verify: the answers of VerifyCheckpoint. True when it was ours.
  bool verified(const CheckpointVerified& e);
  // The record of members up to this ticket is durable, or cannot be made so: `leave` is answered.
  void members_saved(const MembersSaved& e);
  // At the end of a turn: who waits to leave leaves as soon as the cluster can do without.
  void drive_departure();
  // Likewise: recover-quorum is answered once this node coordinates in the new history.
  void drive_recovery();
  // Likewise: what waits for a current ledger is answered once it is, or refused.
  void drive_waiting();
  // Likewise: of refusals that were held back it is said how many there were.
  void drive_refusals();
  // SIGHUP: who may do what is another now, by that caller's word. An event where it differs.
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
  struct Verification {  // one `checkpoints --verify`
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    wire::CheckpointsReply reply;
    std::map<std::uint64_t, std::size_t> awaited;  // token -> view
  };

  struct Waiting {  // until the ledger is current here
    Request request;
    std::uint64_t applied = 0;  // and has that entry
    Instant until{};
  };
  struct Departure {  // one `leave` that waits until the cluster can do without this node
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    Caller caller;
    Instant until{};
  };
  struct Recovering {  // one `recover-quorum` that is being done
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    Caller caller;  // whose word it is
    wire::RecoveryView view;
  };
  struct Leaving {  // one `leave`
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    std::uint64_t ticket = 0;  // of the record that says so
  };

  void dispatch(const Request& e, const wire::Message& m, const Caller& caller);
  // What this node cannot answer the coordinator does, or it is refused with where to ask: without a copy of the ledger
  // all about jobs, with one what only who coordinates knows. False: it can.
  bool answer_elsewhere(const Request& e, const wire::Message& m, const Caller& caller);
  void pass_on_to_coordinator(const Request& e, const wire::Message& m, const Caller& caller, const std::string& could_not,
                              const std::string& because);
  // This node has a copy, but since its start no leader told it yet what of it is committed: what it would say of jobs may
  // be long past, so the request waits. False: it is current.
  bool wait_until_current(const Request& e, const wire::Message& m, const Caller& caller);
  bool is_current(std::uint64_t applied) const;
  // Of another agent only what it cannot answer itself. False: that it is.
  bool refuse_relayed(const Request& e, const wire::Message& m);
  void refuse_for_coordinator(const Request& e, const std::string& could_not, const std::string& because);
  // The task runs or ran on another node, whose agent has its log: refused. False: it is here.
  bool refuse_for_host(const Request& e, const std::string& could_not, const NodeId& node);
  void nodes(const Request& e, const wire::NodeName& q);
  void leave(const Request& e, const wire::LeaveRequest& q, const Caller& caller);
  // May the caller not do such things to the cluster?
  bool refuse_non_operator(const Request& e, const Caller& caller, const std::string& could_not);
  void drain(const Request& e, const wire::DrainRequest& q, const Caller& caller);  // requests_drain.cpp
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
  // The job, when the caller may do that to it; else an error was sent.
  const cluster::JobRecord* permitted_job(const Request& e, const std::string& name, const Caller& caller, Deed deed,
                                          const std::string& verb);
  Role role_of(const Caller& caller) const;
  void forbid(const Request& e, const Caller& caller, const Error& error);
  void note_refusal(const Caller& caller, const std::string& reason);
  void tell_refusal(const Refusals::Report& report);
  // Where they asked: the name of a host.
  const std::string& asked_at(const Caller& caller) const;
  cluster::Asker asker(const Caller& caller) const { return {caller.user, caller.uid, asked_at(caller)}; }
  // What somebody changed and the ledger says nothing of: an event of this node, audit.VERB. `details` come first.
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
  std::vector<Departure> departures_;  // in order of time; one of a connection
  std::vector<Leaving> leaving_;
  std::vector<Recovering> recovering_;
  Instant started_{};
};

}  // namespace dtrain::node
