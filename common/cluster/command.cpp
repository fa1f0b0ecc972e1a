#include "common/cluster/command.h"

#include <algorithm>

#include "common/job/job_spec.h"

namespace dtrain::cluster {
namespace {

template <class T>
Result<std::uint32_t> needed(std::string_view body) {
  const auto decoded = wire::decode_strictly<T>(body);
  if (!decoded) return fail(decoded.error());
  std::uint32_t version = wire::needed_version(*decoded);
  if constexpr (std::is_same_v<T, RaiseVersion>) version = std::max(version, decoded->to);
  if constexpr (std::is_same_v<T, SubmitJob>) {
    const auto spec = wire::decode_strictly<job::JobSpec>(decoded->spec);
    if (!spec) return fail(spec.error());
    version = std::max(version, wire::needed_version(*spec));
  }
  return version;
}

Result<std::uint32_t> needed_by_body(CommandType type, std::string_view body) {
  switch (type) {
    case CommandType::coordinator_started: return needed<CoordinatorStarted>(body);
    case CommandType::submit: return needed<SubmitJob>(body);
    case CommandType::action: return needed<JobAction>(body);
    case CommandType::begin_generation:
    case CommandType::extend_generation: return needed<BeginGeneration>(body);
    case CommandType::report: return needed<HostReport>(body);
    case CommandType::finish: return needed<FinishJob>(body);
    case CommandType::checkpoint: return needed<CheckpointSeen>(body);
    case CommandType::forget: return needed<ForgetJob>(body);
    case CommandType::waits: return needed<JobWaits>(body);
    case CommandType::signal: return needed<SignalJob>(body);
    case CommandType::host_lost: return needed<HostLost>(body);
    case CommandType::drain_host: return needed<DrainHost>(body);
    case CommandType::move_job: return needed<MoveJob>(body);
    case CommandType::preempt_job: return needed<PreemptJob>(body);
    case CommandType::job_still: return needed<JobStill>(body);
    case CommandType::events_told: return needed<EventsTold>(body);
    case CommandType::raise_version: return needed<RaiseVersion>(body);
  }
  return fail(ErrorCode::damaged, "could not read a command: unknown type");
}

}  // namespace

Result<std::uint32_t> version_needed(CommandType type, std::string_view body) {
  const auto version = needed_by_body(type, body);
  return version ? std::max(*version, since_version(type)) : version;
}

}  // namespace dtrain::cluster
