#include "agent/host/discover.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "agent/host/discover_child.h"
#include "common/base/duration_text.h"

namespace dtrain::host {
namespace {

tl::unexpected<Error> not_discovered(const std::string& cause, const std::string& next) {
  return fail(ErrorCode::unavailable, "could not discover the hardware: " + cause, next);
}

using Clock = std::chrono::steady_clock;

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

std::vector<std::string> arguments_of(const DiscoverOptions& options) {
  std::vector<std::string> arguments;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {flag, value});
  };
  add("--topology", options.topology_file);
  add("--root", options.root);
  add("--nvml", options.nvml);
  for (const std::string& gpu : options.exclude_gpus) add("--exclude", gpu);
  for (const KnownGpu& gpu : options.known_gpus) add("--known", known_gpu_text(gpu));
  return arguments;
}

enum class Ending : unsigned char { closed, late, too_long };

// Reads both pipes until the child closes them, or `end`.
Ending collect(const Child& child, Clock::time_point end, std::string& output, std::string& errors) {
  pollfd waiting[2] = {{child.output.get(), POLLIN, 0}, {child.errors.get(), POLLIN, 0}};
  while (waiting[0].fd >= 0 || waiting[1].fd >= 0) {
    const int ready = ::poll(waiting, 2, milliseconds_until(end));
    if (ready < 0 && errno != EINTR) return Ending::late;
    if (ready <= 0) {
      if (Clock::now() >= end) return Ending::late;
      continue;
    }
    for (int i = 0; i < 2; ++i) {
      if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
      char buffer[16 << 10];
      const ssize_t got = ::read(waiting[i].fd, buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        waiting[i].fd = -1;
      } else if (i == 0) {
        if (output.size() + static_cast<std::size_t>(got) > 2 * (kMachineBytes + kFrameHeaderBytes)) return Ending::too_long;
        output.append(buffer, static_cast<std::size_t>(got));
      } else {
        errors.append(buffer, std::min(static_cast<std::size_t>(got), kDiscoveryErrorBytes - errors.size()));
      }
    }
  }
  return Ending::closed;
}

bool ends_within(pid_t pid, Duration patience) {
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd waiting{handle.get(), POLLIN, 0};
  const auto end = Clock::now() + patience;
  while (::poll(&waiting, 1, milliseconds_until(end)) <= 0)
    if (Clock::now() >= end) return false;
  return true;
}

// Returns how it ended: "ended with 3"; "" if it succeeded. A child that cannot be killed is left behind; init will reap it.
std::string reap(pid_t pid, bool kill_it) {
  if (kill_it) ::kill(pid, SIGKILL);
  if (!ends_within(pid, kKillPatience)) {
    ::kill(pid, SIGKILL);
    if (!ends_within(pid, kKillPatience)) return "cannot be killed";
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return std::string("cannot be waited for: ") + ::strerror(errno);
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "ended with " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Result<Machine> discover(const DiscoverOptions& options) {
  const auto end = Clock::now() + options.patience;
  const auto child = start_child(options.program, arguments_of(options));
  if (!child) return fail(child.error());
  std::string output, errors;
  const Ending ending = collect(*child, end, output, errors);
  std::string fate = reap(child->pid, ending != Ending::closed);
  if (ending == Ending::late) fate = "did not end within " + duration_text(options.patience) + " and " + fate;
  if (ending == Ending::too_long) fate = "said too much";
  auto machine = last_answer<Machine>(output);
  if (machine && machine->error) return fail(*machine->error);
  if (machine && machine->complete) return std::move(*machine);
  if (!errors.empty()) fate += " (" + errors.substr(0, errors.find('\n')) + ")";
  if (!machine)
    return not_discovered("dtrain-discover " + (fate.empty() ? "said nothing that can be read" : fate),
                          "see what it says: " + options.program + " --text");
  for (node::Gpu& gpu : machine->gpus)
    if (gpu.vendor == "nvidia" && std::exchange(gpu.healthy, false))
      gpu.reason = ("NVML gave no answer: dtrain-discover " + fate).substr(0, kReasonBytes);
  machine->complete = true;
  machine->warnings.push_back({ErrorCode::unavailable, "could not ask the NVIDIA GPUs' library: dtrain-discover " + fate,
                               "see what nvidia-smi and the kernel's log say, then start the agent again"});
  return std::move(*machine);
}

}  // namespace dtrain::host
