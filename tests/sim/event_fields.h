// The fields of Node's events and effects, for code that visits all of them: the trace's hash and its text.
//
//   visit_fields(visitor, value) calls visitor("name", field) for each field and returns the struct's name.
#pragma once

#include <string_view>

#include "common/node/effect.h"
#include "common/node/event.h"

namespace dtrain::sim {

#define DTRAIN_SIM_FIELDS_OF(space, Type, text, ...)                                            \
  template <class V>                                                                            \
  std::string_view visit_fields([[maybe_unused]] V& v, [[maybe_unused]] const space::Type& e) { \
    __VA_ARGS__;                                                                                \
    return text;                                                                                \
  }
#define DTRAIN_SIM_FIELDS(Type, text, ...) DTRAIN_SIM_FIELDS_OF(node, Type, text, __VA_ARGS__)

// Events.
DTRAIN_SIM_FIELDS(
    Started, "started", v("life", e.life); v("boot", e.facts.boot_id); v("log", e.replica.log); v("records", e.task_records);
    for (const auto& s
         : e.shims) {
      v("shim", s.id);
      v("alive", s.shim_alive);
      v("attempt", s.attempt);
      v("running", s.running);
      v("exit", s.exit);
      v("ready", s.ready);
      v("frozen", s.frozen);
    })
DTRAIN_SIM_FIELDS(Persisted, "persisted", v("ticket", e.ticket))
DTRAIN_SIM_FIELDS(PersistFailed, "persist-failed", v("ticket", e.ticket); v("error", e.error))
DTRAIN_SIM_FIELDS(ConnectionOpened, "connection-opened", v("connection", e.connection); v("user", e.caller.user))
DTRAIN_SIM_FIELDS(Request, "request", v("connection", e.connection); v("request", e.request); v("body", e.body))
DTRAIN_SIM_FIELDS(ConnectionClosed, "connection-closed", v("connection", e.connection))
DTRAIN_SIM_FIELDS(BlobWritten, "blob-written", v("connection", e.connection); v("request", e.request); v("digest", e.digest))
DTRAIN_SIM_FIELDS(BlobFound, "blob-found", v("digest", e.digest); v("there", e.there))
DTRAIN_SIM_FIELDS(Staged, "staged", v("id", e.id); v("work_dir", e.work_dir); if (e.lacks_package) v("lacks_package", e.lacks_package))
DTRAIN_SIM_FIELDS(ShimUp, "shim-up", v("id", e.id); v("result", e.result))
DTRAIN_SIM_FIELDS(AttemptStarted, "attempt-started", v("id", e.id); v("attempt", e.attempt); v("pid", e.pid))
DTRAIN_SIM_FIELDS(AttemptRefused, "attempt-refused", v("id", e.id); v("attempt", e.attempt); v("error", e.error))
DTRAIN_SIM_FIELDS(AttemptExited, "attempt-exited", v("id", e.id); v("attempt", e.attempt); v("exit", e.exit))
DTRAIN_SIM_FIELDS(ShimGone, "shim-gone", v("id", e.id); v("expected", e.expected))
DTRAIN_SIM_FIELDS(FreezeDone, "freeze-done", v("id", e.id); v("frozen", e.frozen); v("result", e.result))
DTRAIN_SIM_FIELDS(JobFilesRemoved, "job-files-removed", v("job", e.job); v("result", e.result))
DTRAIN_SIM_FIELDS(LeaseAsked, "lease-asked", v("id", e.id); v("attempt", e.attempt); v("nonce", e.nonce))
DTRAIN_SIM_FIELDS(StandbyReport, "standby-report", v("id", e.id); v("news", static_cast<std::uint64_t>(e.news)); v("cause", e.cause))
DTRAIN_SIM_FIELDS(ProcessesSeen, "processes-seen", v("id", e.id); v("attempt", e.attempt); v("stopped", e.stopped ? e.stopped->rank : 0))
DTRAIN_SIM_FIELDS(LeaseFroze, "lease-froze", v("id", e.id); v("attempt", e.attempt); v("frozen", e.frozen))
DTRAIN_SIM_FIELDS(Notified, "notified", v("id", e.id); v("attempt", e.attempt); v("ready", e.ready); v("watchdog", e.watchdog);
                  v("stopping", e.stopping); v("status", e.status))
DTRAIN_SIM_FIELDS(CheckpointsScanned, "checkpoints-scanned", v("job", e.job); v("token", e.token); v("found", e.found);
                  v("unrecognised", e.unrecognised))
DTRAIN_SIM_FIELDS(CheckpointVerified, "checkpoint-verified", v("job", e.job); v("token", e.token); v("path", e.path); v("result", e.result))
DTRAIN_SIM_FIELDS(CheckpointQuarantined, "checkpoint-quarantined", v("job", e.job); v("token", e.token); v("path", e.path);
                  v("to", e.moved_to))
DTRAIN_SIM_FIELDS(CheckpointWritten, "checkpoint-written", v("writer", e.writer); v("result", e.result))
DTRAIN_SIM_FIELDS(HookEnded, "hook-ended", v("token", e.token); v("exit", e.exit))
DTRAIN_SIM_FIELDS(HookProgress, "hook-progress", v("token", e.token); v("line", e.line))
DTRAIN_SIM_FIELDS(NetworkUp, "network-up")
DTRAIN_SIM_FIELDS(Gossiped, "gossiped", v("kind", e.input.index()))
DTRAIN_SIM_FIELDS(LogReceived, "log-received", v("type", wire::type_of(e.message)); v("from", e.header.sender.high);
                  v("from", e.header.sender.low))
DTRAIN_SIM_FIELDS(FormationReceived, "formation-received", v("seat", e.report.seat); v("promise", e.report.promise.cluster.low))
DTRAIN_SIM_FIELDS(RelayReceived, "relay-received", v("type", wire::type_of(e.message)); v("from", e.header.sender.high);
                  v("from", e.header.sender.low))
DTRAIN_SIM_FIELDS(RelayEnded, "relay-ended", v("part", e.part); v("how", static_cast<int>(e.how)); v("error", e.error))
DTRAIN_SIM_FIELDS(RelayAnswered, "relay-answered", v("connection", e.connection); v("message", e.message))
DTRAIN_SIM_FIELDS(MembersSaved, "members-saved", v("ticket", e.ticket); v("result", e.result))
DTRAIN_SIM_FIELDS(Reconfigured, "reconfigured", v("labels", e.labels.size()); v("key", e.key_print))
DTRAIN_SIM_FIELDS(GpusSampled, "gpus-sampled", for (const auto& g : e.gpus) v("lost", g.lost))
DTRAIN_SIM_FIELDS(GpuFaulted, "gpu-faulted", v("gpu", e.fault.pci); v("xid", e.fault.xid))
DTRAIN_SIM_FIELDS(HostChecked, "host-checked", v("code", e.check.code); v("signal", e.check.signal); v("cause", e.check.cause))
DTRAIN_SIM_FIELDS(GpuHoldersFound, "gpu-holders-found", v("token", e.token); v("held", e.holders ? e.holders->size() : 0))
DTRAIN_SIM_FIELDS(Tick, "tick")
DTRAIN_SIM_FIELDS(Stopping, "stopping")
DTRAIN_SIM_FIELDS(Examined, "examined", v("token", e.token))
DTRAIN_SIM_FIELDS(DiskLooked, "disk-looked", v("path", e.seen.path); v("free", e.seen.free_bytes); v("total", e.seen.total_bytes))

// Effects.
DTRAIN_SIM_FIELDS(Persist, "persist", v("ticket", e.ticket); if (e.forget_log) v("forget", e.forget_log);
                  if (e.formation) v("formation", *e.formation); v("hard", e.hard); v("snapshot", e.snapshot); v("reset", e.reset_log);
                  v("truncate", e.truncate_from); v("append", e.append); v("put", e.put_task_records); v("erase", e.erase_task_records))
DTRAIN_SIM_FIELDS(Reply, "reply", v("connection", e.connection); v("request", e.request); v("last", e.last); v("body", e.body))
DTRAIN_SIM_FIELDS(CloseConnection, "close-connection", v("connection", e.connection))
DTRAIN_SIM_FIELDS(WriteBlob, "write-blob", v("connection", e.connection); v("request", e.request); v("offset", e.offset);
                  v("bytes", e.bytes); v("last", e.last))
DTRAIN_SIM_FIELDS(DropBlob, "drop-blob", v("connection", e.connection))
DTRAIN_SIM_FIELDS(FindBlob, "find-blob", v("digest", e.digest))
DTRAIN_SIM_FIELDS(SendBlob, "send-blob", v("connection", e.connection); v("request", e.request); v("digest", e.digest);
                  v("offset", e.offset))
DTRAIN_SIM_FIELDS(OpenLog, "open-log", v("connection", e.connection); v("request", e.request); v("sources", e.sources); v("ended", e.ended))
DTRAIN_SIM_FIELDS(UpdateLog, "update-log", v("connection", e.connection); v("request", e.request); v("sources", e.sources);
                  v("ended", e.ended))
DTRAIN_SIM_FIELDS(OpenExec, "open-exec", v("connection", e.connection); v("request", e.request); v("id", e.id))
DTRAIN_SIM_FIELDS(OpenRelay, "open-relay", v("part", e.part); v("connection", e.connection); v("request", e.request);
                  v("stream", e.open.stream))
DTRAIN_SIM_FIELDS(CloseRelay, "close-relay", v("part", e.part))
DTRAIN_SIM_FIELDS(AcceptRelay, "accept-relay", v("connection", e.connection); v("from", e.peer.member.low); v("stream", e.stream))
DTRAIN_SIM_FIELDS(SendRelay, "send-relay", v("type", wire::type_of(e.message)); v("to", e.peer.member.low))
DTRAIN_SIM_FIELDS(Stage, "stage", v("id", e.id); v("job_name", e.job_name); v("port", e.port); v("fresh", e.fresh))
DTRAIN_SIM_FIELDS(LaunchShim, "launch-shim", v("id", e.spec.id); v("argv", e.spec.argv); v("env", e.spec.env); v("port", e.spec.port))
DTRAIN_SIM_FIELDS(StartAttempt, "start-attempt", v("id", e.id); v("attempt", e.attempt))
DTRAIN_SIM_FIELDS(SignalTask, "signal-task", v("id", e.id); v("signal", e.signal); v("whole_tree", e.whole_tree); v("grace", e.grace))
DTRAIN_SIM_FIELDS(KillTask, "kill-task", v("id", e.id))
DTRAIN_SIM_FIELDS(FreezeTask, "freeze-task", v("id", e.id); v("freeze", e.freeze))
DTRAIN_SIM_FIELDS(AnswerLease, "answer-lease", v("id", e.id); v("nonce", e.nonce); v("granted", e.granted); v("epoch", e.epoch))
DTRAIN_SIM_FIELDS(RequireLease, "require-lease", v("id", e.id); v("lease", e.lease))
DTRAIN_SIM_FIELDS(EndShim, "end-shim", v("id", e.id))
DTRAIN_SIM_FIELDS(RemoveJobFiles, "remove-job-files", v("job", e.job); v("files", static_cast<int>(e.files)))
DTRAIN_SIM_FIELDS(WatchCheckpoints, "watch-checkpoints", v("job", e.job); v("on", e.on))
DTRAIN_SIM_FIELDS(ScanCheckpoints, "scan-checkpoints", v("job", e.job); v("token", e.token))
DTRAIN_SIM_FIELDS(VerifyCheckpoint, "verify-checkpoint", v("job", e.job); v("token", e.token); v("path", e.info.path))
DTRAIN_SIM_FIELDS(EndVerification, "end-verification", v("job", e.job); v("token", e.token))
DTRAIN_SIM_FIELDS(QuarantineCheckpoint, "quarantine-checkpoint", v("job", e.job); v("token", e.token); v("path", e.info.path))
DTRAIN_SIM_FIELDS(DeleteCheckpoint, "delete-checkpoint", v("job", e.job); v("path", e.info.path))
DTRAIN_SIM_FIELDS(SendCheckpoint, "send-checkpoint", v("connection", e.connection); v("path", e.info.path); v("offset", e.offset))
DTRAIN_SIM_FIELDS(WriteCheckpoint, "write-checkpoint", v("writer", e.writer); v("path", e.info.path); v("offset", e.offset);
                  v("last", e.last))
DTRAIN_SIM_FIELDS(DropCheckpoint, "drop-checkpoint", v("writer", e.writer))
DTRAIN_SIM_FIELDS(RunHook, "run-hook", v("token", e.token); v("command", e.command))
DTRAIN_SIM_FIELDS(EndHooks, "end-hooks", v("job", e.job))
DTRAIN_SIM_FIELDS(FindGpuHolders, "find-gpu-holders", v("token", e.token))
DTRAIN_SIM_FIELDS(SaveMembers, "save-members", v("ticket", e.ticket); v("record", e.record))
DTRAIN_SIM_FIELDS(SendLog, "send-log", v("type", wire::type_of(e.message)); v("to", e.member.high); v("to", e.member.low))
DTRAIN_SIM_FIELDS(SendFormation, "send-formation", v("to", e.founder); v("promise", e.report.promise.cluster.low))
DTRAIN_SIM_FIELDS(KnowMember, "know-member", v("name", e.identity.name))
DTRAIN_SIM_FIELDS(EnterCluster, "enter-cluster", v("cluster", e.cluster.high); v("cluster", e.cluster.low))
DTRAIN_SIM_FIELDS(Examine, "examine", v("token", e.token); v("peers", e.peers.size()))
DTRAIN_SIM_FIELDS_OF(gossip, Send, "send", v("to", e.to.ip); v("port", e.to.port); v("body", e.body.index()))
DTRAIN_SIM_FIELDS_OF(gossip, KeepLinks, "keep-links", v("peers", e.peers.size()))
DTRAIN_SIM_FIELDS_OF(gossip, CheckGone, "check-gone", v("to", e.to.ip); v("port", e.to.port))
DTRAIN_SIM_FIELDS_OF(gossip, ResolveSeeds, "resolve-seeds")

#undef DTRAIN_SIM_FIELDS
#undef DTRAIN_SIM_FIELDS_OF

}  // namespace dtrain::sim
