#include "common/job/restart.h"

#include <algorithm>

#include "common/base/rng.h"

namespace dtrain::job {

namespace {

constexpr std::uint32_t kFirstRetryable = 128;

bool is_retryable(const RoleSpec& role, const Exit& exit) {
  if (exit.unknown || exit.with_host) return true;
  const auto code = static_cast<std::uint32_t>(exit.signal != 0 ? kFirstRetryable + exit.signal : exit.code);
  if (role.retry_codes.empty()) return code >= kFirstRetryable;
  return std::ranges::any_of(role.retry_codes, [&](const ExitCodes& codes) { return codes.first <= code && code <= codes.last; });
}

}  // namespace

bool may_restart(const RoleSpec& role, const Exit& exit) {
  const bool not_executed = exit.signal == 0 && (exit.code == 126 || exit.code == 127) && !exit.cause.empty();
  if (not_executed) return false;
  switch (role.restart_policy) {
    case RestartPolicy::never: return false;
    case RestartPolicy::always: return true;
    case RestartPolicy::on_failure: return !exit.success();
    case RestartPolicy::exit_code: return is_retryable(role, exit);
  }
  return false;
}

Duration backoff_delay(const RestartBackoff& policy, std::uint32_t in_row, std::uint64_t seed) {
  if (in_row == 0) return policy.first;
  Duration delay = policy.initial;
  for (std::uint32_t i = 1; i < in_row && delay < policy.max; ++i) delay *= 2;
  delay = std::min(delay, policy.max);
  if (!policy.jitter || delay <= 0ns) return delay;
  Rng rng(seed);
  return delay - Duration(static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(delay.count() / 4 + 1))));
}

std::string signal_name(std::int32_t signal) {
  // Linux numbers, the same on all supported architectures; strsignal() would use the user's language.
  static constexpr const char* kNames[] = {"",          "SIGHUP",  "SIGINT",    "SIGQUIT", "SIGILL",   "SIGTRAP", "SIGABRT", "SIGBUS",
                                           "SIGFPE",    "SIGKILL", "SIGUSR1",   "SIGSEGV", "SIGUSR2",  "SIGPIPE", "SIGALRM", "SIGTERM",
                                           "SIGSTKFLT", "SIGCHLD", "SIGCONT",   "SIGSTOP", "SIGTSTP",  "SIGTTIN", "SIGTTOU", "SIGURG",
                                           "SIGXCPU",   "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGIO",   "SIGPWR",  "SIGSYS"};
  if (signal > 0 && signal < static_cast<std::int32_t>(std::size(kNames))) return kNames[signal];
  return "signal " + std::to_string(signal);
}

std::string describe(const Exit& exit) {
  std::string how;
  if (exit.unknown) how = "end unknown";
  else if (exit.signal != 0) how = "signal " + signal_name(exit.signal);
  else how = "exit code " + std::to_string(exit.code);
  if (exit.out_of_memory) return "out of memory (" + how + ")";
  if (exit.with_host) return "its host was stopped (" + how + ")";
  if (!exit.cause.empty()) return exit.cause + " (" + how + ")";
  return how;
}

std::uint32_t failed_rank(const Exit& exit) { return exit.recorded ? exit.recorded->rank : exit.rank; }

std::string who_failed(const TaskId& task, const Exit& exit) { return text_of_rank(task.text(), failed_rank(exit)); }

}  // namespace dtrain::job
