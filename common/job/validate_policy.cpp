#include "common/job/validate_policy.h"

#include <algorithm>

#include "common/job/file_errors.h"
#include "common/job/names.h"
#include "common/job/quantity.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

void add(std::vector<FileError>& errors, std::string code, std::string path, std::string message, std::string next = "") {
  errors.push_back({std::move(code), "", 0, std::move(path), std::move(message), std::move(next)});
}

void check_seconds(const std::string& path, Duration span, std::vector<FileError>& errors) {
  check_span(path, span, errors);
  if (span % 1s != Duration::zero()) add(errors, "out-of-range", path, "must be a whole number of seconds");
}

void check_backoff(const std::string& path, const RestartBackoff& backoff, std::vector<FileError>& errors) {
  check_span(join_path(path, "first"), backoff.first, errors);
  check_span(join_path(path, "initial"), backoff.initial, errors);
  check_span(join_path(path, "max"), backoff.max, errors);
  check_span(join_path(path, "resetAfter"), backoff.reset_after, errors);
  for (const auto& [key, value] : {std::pair("first", backoff.first), std::pair("initial", backoff.initial)})
    if (value > backoff.max)
      add(errors, "conflict", join_path(path, key),
          "must be at most max (" + format_duration(backoff.max) + "), not " + format_duration(value));
}

void check_deadlines(const std::string& path, const Policy& policy, std::vector<FileError>& errors) {
  if (policy.active_deadline) {
    check_seconds(join_path(path, "activeDeadlineSeconds"), *policy.active_deadline, errors);
    if (*policy.active_deadline == Duration::zero())
      add(errors, "out-of-range", join_path(path, "activeDeadlineSeconds"), "must be 1 or more", "leave it out for no deadline");
  }
  if (policy.ttl_after_finished) check_seconds(join_path(path, "ttlSecondsAfterFinished"), *policy.ttl_after_finished, errors);
  check_seconds(join_path(path, "expectedSeconds"), policy.expected, errors);
  check_span(join_path(path, "stopGracePeriod"), policy.stop_grace_period, errors);
  if (!policy.signal_before_deadline) return;
  const std::string at = join_path(path, "signalBeforeDeadline");
  check_signal(join_path(at, "signal"), policy.signal_before_deadline->signal, errors);
  check_span(join_path(at, "before"), policy.signal_before_deadline->before, errors);
  if (policy.active_deadline && policy.signal_before_deadline->before >= *policy.active_deadline)
    add(errors, "conflict", join_path(at, "before"),
        "must be less than activeDeadlineSeconds, not " + format_duration(policy.signal_before_deadline->before));
}

// Where one task decides, or each needs all others, a part of them means nothing.
void check_percent(const std::string& path, const JobSpec& spec, std::vector<FileError>& errors) {
  const std::uint32_t percent = spec.policy.success_percent;
  if (percent == 0) return;
  if (percent > kAllPercent) add(errors, "out-of-range", path, "must be from 1 to 100, not " + std::to_string(percent));
  if (const auto decides = deciding_task(spec))
    add(errors, "conflict", path, "has no meaning: the success of " + decides->text() + " is the job's",
        "write successPolicy: AllWorkers, or leave it out");
  else if (is_collective(spec))
    add(errors, "conflict", path, "has no meaning: no task of this job continues without the others", "leave it out");
}

void check_checkpoint(const std::string& path, const CheckpointSpec& checkpoint, std::vector<FileError>& errors) {
  if (!checkpoint.dir.starts_with('/'))
    add(errors, "out-of-range", join_path(path, "dir"), "must be an absolute path, not " + in_quotes(checkpoint.dir));
  if (checkpoint.replicas < 1) add(errors, "out-of-range", join_path(path, "replicas"), "must be 1 or more");
  const std::string& restore = checkpoint.restore;
  if (restore != "auto" && restore != "never" && !restore.starts_with('/'))
    add(errors, "out-of-range", join_path(path, "restore"), "must be auto, never or an absolute path, not " + in_quotes(restore));
}

void check_hook(const std::string& path, const NotifyHook& hook, std::vector<FileError>& errors) {
  if (hook.command.empty() && hook.on.empty()) return;
  if (hook.command.empty() || hook.command.front().empty())
    add(errors, "missing", join_path(path, "command"), "is required: the program to run");
  if (hook.on.empty()) add(errors, "missing", join_path(path, "on"), "is required: the states to run it at");
  const std::vector<std::string> states(job_state_names().begin(), job_state_names().end());
  for (std::size_t i = 0; i < hook.on.size(); ++i) {
    if (std::find(states.begin(), states.end(), hook.on[i]) != states.end()) continue;
    const std::string near = nearest(hook.on[i], states);
    add(errors, "out-of-range", item_path(join_path(path, "on"), i), "must be " + one_of(states) + ", not " + in_quotes(hook.on[i]),
        near.empty() ? "" : "did you mean " + in_quotes(near) + "?");
  }
}

}  // namespace

void check_span(const std::string& path, Duration span, std::vector<FileError>& errors) {
  if (span < Duration::zero() || span > kLongestDuration || span % 1ms != Duration::zero())
    add(errors, "out-of-range", path, "must be whole milliseconds from 0 to " + format_duration(kLongestDuration));
}

void check_signal(const std::string& path, std::int32_t signal, std::vector<FileError>& errors) {
  if (signal < 1 || signal > kHighestSignal)
    add(errors, "out-of-range", path, "must be a signal from 1 to " + std::to_string(kHighestSignal) + ", not " + std::to_string(signal));
}

void check_policy(const JobSpec& spec, std::vector<FileError>& errors) {
  const std::string path = "spec.policy";
  check_backoff(join_path(path, "restartBackoff"), spec.policy.restart_backoff, errors);
  check_span(join_path(path, "failureThreshold.within"), spec.policy.failure_threshold.within, errors);
  if (spec.policy.failure_threshold.count > 0 && spec.policy.failure_threshold.within == Duration::zero())
    add(errors, "out-of-range", join_path(path, "failureThreshold.within"), "must be above 0", "count: 0 switches it off");
  check_deadlines(path, spec.policy, errors);
  if (spec.policy.grow_after) check_span(join_path(path, "growAfter"), *spec.policy.grow_after, errors);
  check_percent(join_path(path, "successPercent"), spec, errors);
  for (const auto& [role, most] : spec.policy.wait_for) {
    const std::string at = join_path(path, "waitFor." + role);
    check_span(at, most, errors);
    if (spec.roles.contains(role)) continue;
    std::vector<std::string> roles;
    for (const auto& known : spec.roles) roles.push_back(known.first);
    add(errors, "out-of-range", at, "there is no role of that name", "name " + one_of(roles));
  }
  if (spec.checkpoint) check_checkpoint("spec.checkpoint", *spec.checkpoint, errors);
  check_hook("spec.notify", spec.notify, errors);
}

}  // namespace dtrain::job
