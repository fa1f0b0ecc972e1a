#include "agent/host/discover.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "common/wire/codec.h"

namespace dtrain::host {
namespace {

constexpr std::size_t kHeaderBytes = 4;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { reset(); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

tl::unexpected<Error> not_discovered(const std::string& cause, const std::string& next) {
  return fail(ErrorCode::unavailable, "could not discover the hardware: " + cause, next);
}

using Clock = std::chrono::steady_clock;

int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000));
}

struct Child {
  pid_t pid = -1;
  Descriptor output, errors;
};

Result<Child> start(const DiscoverOptions& options) {
  std::vector<std::string> arguments{options.program};
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) arguments.insert(arguments.end(), {flag, value});
  };
  add("--topology", options.topology_file);
  add("--root", options.root);
  add("--nvml", options.nvml);
  for (const std::string& gpu : options.exclude_gpus) add("--exclude", gpu);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // Nothing of the agent's environment reaches hwloc but where a maker's library may lie.
  std::string library_path = "LD_LIBRARY_PATH=";
  if (const char* value = ::getenv("LD_LIBRARY_PATH")) library_path += value;
  std::string path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin", language = "LC_ALL=C";
  char* environment[] = {path.data(), language.data(),
                         library_path.size() > 16 ? library_path.data() : nullptr, nullptr};

  int output[2], errors[2];
  if (::pipe2(output, O_CLOEXEC) != 0) return not_discovered(std::string("pipe: ") + ::strerror(errno), "");
  Child child{-1, Descriptor(output[0]), Descriptor()};
  const Descriptor output_end(output[1]);
  if (::pipe2(errors, O_CLOEXEC) != 0) return not_discovered(std::string("pipe: ") + ::strerror(errno), "");
  child.errors = Descriptor(errors[0]);
  const Descriptor errors_end(errors[1]);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output_end.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, errors_end.get(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int code =
      ::posix_spawn(&child.pid, options.program.c_str(), &actions, &attributes, argv.data(), environment);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (code != 0)
    return not_discovered("could not run " + options.program + ": " + ::strerror(code),
                          "install or build all of dtrain");
  return child;
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
        if (output.size() + static_cast<std::size_t>(got) > 2 * (kMachineBytes + kHeaderBytes))
          return Ending::too_long;
        output.append(buffer, static_cast<std::size_t>(got));
      } else {
        errors.append(buffer, std::min(static_cast<std::size_t>(got), kDiscoveryErrorBytes - errors.size()));
      }
    }
  }
  return Ending::closed;
}

bool ends_within(pid_t pid, Duration patience) {
  const Descriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd waiting{handle.get(), POLLIN, 0};
  const auto end = Clock::now() + patience;
  while (::poll(&waiting, 1, milliseconds_until(end)) <= 0)
    if (Clock::now() >= end) return false;
  return true;
}

// How it ended: "ended with 3"; "" when it did well. What cannot even be killed is left behind; init will
// have it.
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

// The last whole answer; unset when there is none that can be read.
std::optional<Machine> last_answer(std::string_view output) {
  std::optional<Machine> last;
  while (output.size() >= kHeaderBytes) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < kHeaderBytes; ++i) size = size << 8 | static_cast<unsigned char>(output[i]);
    output.remove_prefix(kHeaderBytes);
    if (size > kMachineBytes || size > output.size()) break;
    auto machine = wire::decode<Machine>(output.substr(0, size));
    if (!machine) break;
    last = std::move(*machine);
    output.remove_prefix(size);
  }
  return last;
}

std::string to_text(Duration duration) {
  const auto count = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  return count % 1000 == 0 ? std::to_string(count / 1000) + " s" : std::to_string(count) + " ms";
}

}  // namespace

Result<Machine> discover(const DiscoverOptions& options) {
  const auto end = Clock::now() + options.patience;
  const auto child = start(options);
  if (!child) return fail(child.error());
  std::string output, errors;
  const Ending ending = collect(*child, end, output, errors);
  std::string fate = reap(child->pid, ending != Ending::closed);
  if (ending == Ending::late) fate = "did not end within " + to_text(options.patience) + " and " + fate;
  if (ending == Ending::too_long) fate = "said too much";
  auto machine = last_answer(output);
  if (machine && machine->error) return fail(*machine->error);
  if (machine && machine->complete) return std::move(*machine);
  if (!errors.empty()) fate += " (" + errors.substr(0, errors.find('\n')) + ")";
  if (!machine)
    return not_discovered("dtrain-discover " + (fate.empty() ? "said nothing that can be read" : fate),
                          "see what it says: " + options.program + " --text");
  for (node::Gpu& gpu : machine->gpus)
    if (gpu.vendor == "nvidia") gpu.healthy = false;
  machine->complete = true;
  machine->warnings.push_back({ErrorCode::unavailable,
                               "could not ask the NVIDIA GPUs' library: dtrain-discover " + fate,
                               "see what nvidia-smi and the kernel's log say, then start the agent again"});
  return std::move(*machine);
}

}  // namespace dtrain::host
