#include "common/cluster/command.h"

#include <algorithm>

#include "common/job/job_spec.h"

namespace dtrain::cluster {
namespace {

template <class T>
Result<std::uint32_t> needed(CommandType type, std::string_view body) {
  const auto decoded = wire::decode_strictly<T>(body);
  return decoded ? version_of(type, *decoded) : fail(decoded.error());
}

}  // namespace

Result<std::uint32_t> version_needed(CommandType type, std::string_view body) {
  switch (type) {
    case CommandType::coordinator_started: return needed<CoordinatorStarted>(type, body);
    case CommandType::submit: return needed<SubmitJob>(type, body);
    case CommandType::action: return needed<JobAction>(type, body);
    case CommandType::begin_generation:
    case CommandType::extend_generation: return needed<BeginGeneration>(type, body);
    case CommandType::report: return needed<HostReport>(type, body);
    case CommandType::finish: return needed<FinishJob>(type, body);
    case CommandType::checkpoint: return needed<CheckpointSeen>(type, body);
    case CommandType::forget: return needed<ForgetJob>(type, body);
    case CommandType::waits: return needed<JobWaits>(type, body);
    case CommandType::signal: return needed<SignalJob>(type, body);
    case CommandType::host_lost: return needed<HostLost>(type, body);
    case CommandType::drain_host: return needed<DrainHost>(type, body);
    case CommandType::move_job: return needed<MoveJob>(type, body);
    case CommandType::preempt_job: return needed<PreemptJob>(type, body);
    case CommandType::job_still: return needed<JobStill>(type, body);
    case CommandType::events_told: return needed<EventsTold>(type, body);
    case CommandType::raise_version: return needed<RaiseVersion>(type, body);
  }
  return fail(ErrorCode::damaged, "could not read a command: unknown type");
}

std::uint32_t version_of_submit(const SubmitJob& body, const job::JobSpec& spec) {
  return std::max({wire::needed_version(body), since_version(CommandType::submit), wire::needed_version(spec)});
}

Result<std::uint32_t> version_of_submit(const SubmitJob& body) {
  const auto spec = wire::decode_strictly<job::JobSpec>(body.spec);
  return spec ? Result<std::uint32_t>(version_of_submit(body, *spec)) : fail(spec.error());
}

}  // namespace dtrain::cluster
