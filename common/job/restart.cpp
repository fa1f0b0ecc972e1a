#include "common/job/restart.h"

#include <algorithm>

#include "common/base/rng.h"

namespace dtrain::job {

bool may_restart(RestartPolicy policy, const Exit& exit) {
  const bool not_executed = exit.signal == 0 && (exit.code == 126 || exit.code == 127) && !exit.cause.empty();
  if (not_executed) return false;
  switch (policy) {
    case RestartPolicy::never: return false;
    case RestartPolicy::always: return true;
    case RestartPolicy::on_failure: return !exit.success();
    case RestartPolicy::exit_code: return exit.unknown || exit.with_host || exit.signal != 0 || exit.code >= 128;
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

}  // namespace dtrain::job
