// How the ledger reads entries and snapshots, and what it does if it cannot (versions.h).
#include <algorithm>
#include <tuple>
#include <utility>

#include "common/cluster/ledger.h"
#include "common/cluster/outcome.h"

namespace dtrain::cluster {

namespace {
// The part of a later program's snapshot that every program can read.
struct SnapshotHead {
  std::uint32_t version = kFirstVersion;
  template <class V>
  void fields(V& v) {
    v("version", version);
  }
};
struct EntryHead {
  std::uint32_t needs = kFirstVersion;
  template <class V>
  void fields(V& v) {
    v("n", needs);
  }
};

// Fowler, Noll and Vo: FNV-1a, 64 bits. Nobody gains from two states with the same hash.
std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

template <class T, class Handler>
Applied with(const Command& command, Handler handler) {
  auto body = wire::decode_strictly<T>(command.body);
  if (!body) return refused(ErrorCode::damaged, body.error().message);
  return handler(*body);
}
}  // namespace

tl::expected<Ledger, Behind> Ledger::restore(std::string_view snapshot, std::uint64_t index, std::uint32_t knows) {
  wire::DecodeLimits limits;
  limits.bytes = 1u << 30;
  limits.elements = 1u << 28;  // the bytes are this node's own or the leader's: their number is the limit
  const auto unreadable = [&](const std::string& cause, std::uint32_t needs) {
    return tl::unexpected(Behind{index, needs > knows ? needs : 0, "could not read the snapshot of the ledger: " + cause});
  };
  auto state = wire::decode_strictly<LedgerState>(snapshot, limits);
  if (!state) {
    const auto head = wire::decode<SnapshotHead>(snapshot, limits);
    return unreadable(state.error().message, head ? head->version : 0);
  }
  if (state->version > knows) return unreadable("it is of a later version", state->version);
  Ledger ledger;
  ledger.knows = knows;
  if (auto decoded = ledger.window_.decode(state->requests); !state->requests.empty() && !decoded)
    return unreadable(decoded.error().message, 0);
  state->requests.clear();
  ledger.state_ = std::move(*state);
  for (const auto& [id, job] : ledger.state_.jobs) {
    if (job.replaced) ledger.winding_.emplace(job.spec.name, id);
    else ledger.names_[job.spec.name] = id;
    if (!job.request_id.empty()) ledger.requests_[job.request_id] = id;
    ledger.touched_.insert(id);
  }
  return ledger;
}

std::string Ledger::snapshot() const {
  state_.requests = window_.encode();
  std::string bytes = wire::encode(state_);
  state_.requests.clear();
  return bytes;
}

std::uint64_t Ledger::hash() const { return fnv1a(snapshot()); }

Applied Ledger::apply(std::uint64_t index, std::string_view payload, Duration log_elapsed) {
  const auto stopped = [&](std::uint32_t needs, const std::string& cause) {
    if (broken_rule == "unknown-entry-stops") {
      state_.applied = index;
      return refused(ErrorCode::refused, cause);
    }
    behind_ = Behind{index, needs, "could not read entry " + std::to_string(index) + " of the log: " + cause};
    return refused(ErrorCode::damaged, behind_->cause);
  };
  if (behind_) return refused(ErrorCode::damaged, behind_->cause);
  auto command = wire::decode_strictly<Command>(payload);
  const std::uint32_t needs = command ? command->needs : wire::decode<EntryHead>(payload).value_or(EntryHead{}).needs;
  // No replica applies it, whatever else is in it: it was proposed by mistake.
  const bool raises = command && command->type == CommandType::raise_version;
  if (needs > state_.version && !raises) {
    state_.applied = index;
    Applied result = refused(ErrorCode::refused, "could not carry out the request: it needs version " + std::to_string(needs) +
                                                     " of the ledger, which has version " + std::to_string(state_.version));
    if (command && command->request) result.request = command->request->id();
    return result;
  }
  if (needs > knows) return stopped(needs, "it is of a later version");
  if (!command) return stopped(0, command.error().message);
  const auto before = std::tuple(state_.applied, state_.epoch, state_.at, state_.elapsed, state_.log_elapsed);
  Applied result = apply_read(*command, index, log_elapsed);
  if (result.status || result.status.error().code != ErrorCode::damaged) return result;
  std::tie(state_.applied, state_.epoch, state_.at, state_.elapsed, state_.log_elapsed) = before;
  return stopped(0, result.status.error().message);
}

Applied Ledger::apply_read(const Command& command, std::uint64_t index, Duration log_elapsed) {
  state_.applied = index;
  const Duration unmeasured = std::max<Duration>(log_elapsed - state_.log_elapsed, 0ns);
  state_.log_elapsed = std::max(log_elapsed, state_.log_elapsed);
  state_.epoch = std::max(state_.epoch, command.epoch);
  if (command.type != CommandType::coordinator_started && command.at > state_.at) {
    state_.elapsed += command.at - state_.at;
    state_.at = command.at;
  }
  return command.request ? apply_request(command, index, unmeasured) : dispatch(command, index, unmeasured);
}

// The job that the entry submitted; nullptr: there is none, or it is forgotten.
const JobRecord* Ledger::made_by(std::uint64_t index) const {
  for (JobId base = state_.job_base; base >= kJobsOfHistory; base -= kJobsOfHistory)
    if (const JobRecord* job = find(base + index)) return job;
  return find(index);
}

// Applies a user's request once, however often it was proposed. A repetition is answered with the job that the first one made.
Applied Ledger::apply_request(const Command& command, std::uint64_t index, Duration unmeasured) {
  using Verdict = raft::RequestWindow::Verdict;
  const auto judged = window_.judge({command.request->id(), command.request->minted}, index);
  Applied result;
  const JobRecord* job = made_by(judged.index);
  if (judged.verdict == Verdict::fresh) result = dispatch(command, index, unmeasured);
  else if (judged.verdict == Verdict::repeated && job != nullptr) result = done(*job);
  else
    result = refused(ErrorCode::refused,
                     judged.verdict == Verdict::repeated
                         ? "could not carry out the request again: it was decided before, and the answer was lost"
                         : "could not carry out the request: it is too old",
                     "dtrainctl jobs and dtrainctl events show what came of it");
  result.request = command.request->id();
  return result;
}

Applied Ledger::dispatch(const Command& c, std::uint64_t index, Duration unmeasured) {
  switch (c.type) {
    case CommandType::coordinator_started:
      return with<CoordinatorStarted>(c, [&](const auto& b) { return apply_coordinator(b, c, unmeasured); });
    case CommandType::submit: return with<SubmitJob>(c, [&](const auto& b) { return apply_submit(b, index, c.wall); });
    case CommandType::action: return with<JobAction>(c, [&](const auto& b) { return apply_action(b, c.wall); });
    case CommandType::begin_generation: return with<BeginGeneration>(c, [&](const auto& b) { return apply_begin(b, false, c.wall); });
    case CommandType::extend_generation: return with<BeginGeneration>(c, [&](const auto& b) { return apply_begin(b, true, c.wall); });
    case CommandType::report: return with<HostReport>(c, [&](const auto& b) { return apply_report(b, c.wall); });
    case CommandType::finish: return with<FinishJob>(c, [&](const auto& b) { return apply_finish(b, c.wall); });
    case CommandType::checkpoint: return with<CheckpointSeen>(c, [&](const auto& b) { return apply_checkpoint(b, c.wall); });
    case CommandType::forget: return with<ForgetJob>(c, [&](const auto& b) { return apply_forget(b, c.wall); });
    case CommandType::waits: return with<JobWaits>(c, [&](const auto& b) { return apply_waits(b, c.wall); });
    case CommandType::signal: return with<SignalJob>(c, [&](const auto& b) { return apply_signal(b); });
    case CommandType::host_lost: return with<HostLost>(c, [&](const auto& b) { return apply_host_lost(b, index, c.wall); });
    case CommandType::drain_host: return with<DrainHost>(c, [&](const auto& b) { return apply_drain(b, index, c.wall); });
    case CommandType::move_job: return with<MoveJob>(c, [&](const auto& b) { return apply_move(b, c.wall); });
    case CommandType::preempt_job: return with<PreemptJob>(c, [&](const auto& b) { return apply_preempt(b, c.wall); });
    case CommandType::job_still: return with<JobStill>(c, [&](const auto& b) { return apply_still(b, c.wall); });
    case CommandType::events_told:
      return with<EventsTold>(c, [&](const auto& b) {
        state_.told = std::max(state_.told, std::min(b.seq, state_.next_event - 1));
        return Applied{};
      });
    case CommandType::raise_version: return with<RaiseVersion>(c, [&](const auto& b) { return apply_version(b, c.wall); });
  }
  return refused(ErrorCode::damaged, "unknown type");
}

Applied Ledger::apply_version(const RaiseVersion& c, WallTime wall) {
  if (c.to > knows) return refused(ErrorCode::damaged, "it raises the ledger to a later version");
  if (c.to <= state_.version) return {};
  add_event(wall, 0, "ledger.version", std::to_string(c.to), "", {{"from", std::to_string(state_.version)}, {"to", std::to_string(c.to)}});
  state_.version = c.to;
  return {};
}

}  // namespace dtrain::cluster
