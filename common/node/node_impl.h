// The inside of Node: its parts, and the routing between them.
//
//   node.cpp          events in, each to the part that it concerns
//   node_log.cpp      the log: outputs, leadership, applied entries
//   node_forming.cpp  how a cluster begins
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "common/node/callers.h"
#include "common/node/checkpoint_copies.h"
#include "common/node/checkpoint_queries.h"
#include "common/node/checkpoint_requests.h"
#include "common/node/checkpoint_watch.h"
#include "common/node/checkups.h"
#include "common/node/client_commands.h"
#include "common/node/cluster_members.h"
#include "common/node/context.h"
#include "common/node/coordinator.h"
#include "common/node/copy_check.h"
#include "common/node/council_seats.h"
#include "common/node/forming.h"
#include "common/node/gpu_reclaim.h"
#include "common/node/history.h"
#include "common/node/host_fitness.h"
#include "common/node/host_hooks.h"
#include "common/node/host_logs.h"
#include "common/node/host_tasks.h"
#include "common/node/images.h"
#include "common/node/job_requests.h"
#include "common/node/leases.h"
#include "common/node/ledger_versions.h"
#include "common/node/member_requests.h"
#include "common/node/node.h"
#include "common/node/package_requests.h"
#include "common/node/packages.h"
#include "common/node/proposals.h"
#include "common/node/relays.h"
#include "common/node/requests.h"
#include "common/node/staging.h"
#include "common/node/stream_requests.h"
#include "common/node/streams.h"
#include "common/node/view_requests.h"

namespace dtrain::node {

struct Node::Impl {
  Impl(NodeOptions options, Rng rng, Log& log)
      : c(std::move(options), rng, log),
        members(c),
        forming(c),
        leases(c),
        relays(c),
        checkpoint_requests(c, relays),
        coordinator(c, leases, checkpoint_requests),
        versions(c),
        copy_check(c),
        seats(c, versions),
        proposals(c),
        checkpoint_watch(c, proposals),
        streams(c, coordinator),
        staging(c),
        gpu_reclaim(c, staging),
        host_hooks(c, staging),
        checkpoint_copies(c, staging, relays, checkpoint_watch),
        images(c, staging),
        packages(c, staging, relays),
        host_logs(c, relays, streams),
        checkups(c, relays),
        callers(c),
        client_commands(c, callers, proposals),
        package_requests(c, callers, packages),
        job_requests(c, callers, client_commands, package_requests, coordinator, versions, relays),
        view_requests(c, callers, coordinator),
        checkpoint_queries(c, callers, checkpoint_requests, relays),
        stream_requests(c, callers, streams, host_logs, relays),
        member_requests(c, callers, client_commands, seats),
        requests(c, callers, relays, versions,
                 {c, callers, stream_requests, packages, checkpoint_requests, checkups, checkpoint_queries, member_requests,
                  client_commands, package_requests, job_requests, view_requests, checkpoint_copies}),
        history(c),
        fitness(c, coordinator, parts),
        tasks(c, staging, proposals, leases, streams, fitness) {
    c.members = &members;
    c.forming = &forming;
    checkpoint_requests.use(checkpoint_copies);
    staging.use({&gpu_reclaim, &host_hooks, &checkpoint_copies, &images, &packages});
  }

  Context c;
  ClusterMembers members;
  Forming forming;
  Leases leases;
  Relays relays;
  CheckpointRequests checkpoint_requests;
  Coordinator coordinator;
  LedgerVersions versions;
  CopyCheck copy_check;
  CouncilSeats seats;
  Proposals proposals;
  CheckpointWatch checkpoint_watch;
  Streams streams;
  Staging staging;
  GpuReclaim gpu_reclaim;
  HostHooks host_hooks;
  CheckpointCopies checkpoint_copies;
  Images images;
  Packages packages;
  HostLogs host_logs;
  Checkups checkups;
  Callers callers;
  ClientCommands client_commands;
  PackageRequests package_requests;
  JobRequests job_requests;
  ViewRequests view_requests;
  CheckpointQueries checkpoint_queries;
  StreamRequests stream_requests;
  MemberRequests member_requests;
  Requests requests;
  History history;
  // In the order in which they are told what happens.
  const std::vector<Part*> parts{&callers,
                                 &tasks,
                                 &member_requests,
                                 &requests,
                                 &seats,
                                 &versions,
                                 &copy_check,
                                 &proposals,
                                 &client_commands,
                                 &checkpoint_watch,
                                 &coordinator,
                                 &history,
                                 &streams,
                                 &relays,
                                 &gpu_reclaim,
                                 &host_hooks,
                                 &checkpoint_requests,
                                 &checkpoint_copies,
                                 &images,
                                 &packages,
                                 &fitness,
                                 &host_logs,
                                 &checkpoint_queries,
                                 &checkups,
                                 &members,
                                 &forming};
  HostFitness fitness;
  HostTasks tasks;
  std::vector<Event> early;            // events that arrived before the ledger was current here
  bool asked_for_current = false;      // a report of this life was sent for that purpose
  std::uint64_t current_from = 0;      // number of that report: an older report of this life may stand in a log that began anew
  std::uint64_t ticket = 0;            // of the log's Persist in flight; 0: none
  std::uint64_t log_token = 0;         // the log's own number for it
  std::vector<raft::Send> held_sends;  // messages that may be sent only once that Persist is durable
  // first messages of this life, to members whose addresses Raft does not know yet; at most kEarlyHellos
  std::map<MemberId, raft::Send> early_hellos;
  std::deque<wire::Forward> before_office;  // forwarded to this node when it led but did not coordinate yet
  std::uint64_t life = 0;
  // index of the entry that makes this node coordinator once it is applied; 0: none is proposed
  std::uint64_t own_entry = 0;
  std::uint64_t own_term = 0;    // term of that entry
  bool quorum_lost = false;      // that was reported
  bool stopped_reading = false;  // this node's program cannot read on in the log, and that was reported
  Instant last_entry{};          // when a leader last sent this learner anything, a heartbeat included
  Instant next_copy_look{};      // when to check next whether the log goes on without this learner
  std::uint64_t told_local = 0;  // number of the newest event of this node that followers were sent

  void start(const Started& e);
  void start_ledger(const Started& e);
  void open_log(raft::Stored stored, std::optional<MemberId> found);
  void pass_on_members();
  void log_advanced();
  void formation_durable(const cluster::formation::Persist& done);
  void replace_log(raft::Stored stored);
  void take_what_is_formed();
  bool may_hear(const gossip::Input& input) const;
  void take_outputs(raft::Outputs out);
  void install(const raft::StoredSnapshot& snapshot);
  void forget_ledger();
  void lead_or_follow();
  void take_office();
  void apply(const raft::LogEntry& entry);
  void after_commit();
  void send(const raft::Send& send);
  void forwarded(wire::Forward forward);
  void gossiped(const gossip::Input& input);
  void log_received(const LogReceived& e);
  bool runs(const Part& part) const;  // what the part needs is there
  void drive_parts();
  void deliver();  // what parts have for tasks of this host and for each other
  Part* asker_of(std::uint64_t token);
  void watch_copy();
  void watch_reading();
  void watch_quorum();
  void ask_for_current();
  void persist(raft::Persist wanted);
  void handle(const Event& event);
  void decide(const Event& event);
};

}  // namespace dtrain::node
