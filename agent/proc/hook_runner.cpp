#include "agent/proc/hook_runner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"
#include "agent/proc/become_user.h"
#include "agent/proc/container_host.h"
#include "agent/proc/helper_program.h"
#include "common/base/limits.h"

namespace dtrain::proc {
namespace {

constexpr int kEventsPerTurn = 3 * static_cast<int>(kHooksAtOnce);
constexpr std::size_t kErrorReads = 64;       // of one hook in one turn, a chunk each: more than a pipe holds
constexpr int kLastLooks = 20;                // checks, at the runner's end, whether the killed processes are gone
constexpr useconds_t kLastLookPause = 5'000;  // microseconds

bool same_user(const std::optional<task::User>& a, const std::optional<task::User>& b) {
  return a && b && a->uid == b->uid && a->name == b->name;
}

// Between fork and exec: only calls that are safe there. `argv` and `env` were made before. `line_pipe`: -1 for /dev/null.
[[noreturn]] void become_hook(const account::HostUser& user, char* const* argv, char* const* env, int error_pipe, int line_pipe,
                              const std::vector<std::string>& groups) {
  ::setsid();
  prepare_child();
  for (const std::string& group : groups) {
    if (write_control(group, "0")) continue;
    constexpr std::string_view cause = "could not join its control group";
    (void)!::write(error_pipe, cause.data(), cause.size());
    ::_exit(kNotExecuted);
  }
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(line_pipe < 0 ? null : line_pipe, STDOUT_FILENO) < 0 ||
      ::dup2(error_pipe, STDERR_FILENO) < 0 || !become(user) || ::chdir("/") != 0)
    ::_exit(kNotExecuted);
  prepare_child();  // become() cancelled the parent-death signal
  ::umask(022);
  execute(argv, env);
}

}  // namespace

struct HookRunner::Hook {
  std::uint64_t token = 0;
  pid_t pid = -1;
  UniqueFd pid_fd;
  UniqueFd errors;  // read end of its stderr
  JobId job = 0;
  std::optional<task::User> user;
  Cgroups::Place group;
  Instant limit{};
  bool timed_out = false;
  std::string tail;
  UniqueFd lines;          // read end of its stdout, if that is read
  std::string line, news;  // of that: the line that has not ended, and the newest that has and is to be handed on; "": none
  Instant hand_on{};       // not before this
  std::optional<node::KeepFree> keep_free;  // where its user's images are
  std::string images;                       // a directory of that file system
  std::string cause;                        // why it was killed; "": the limit, or it was not
};

Result<std::unique_ptr<HookRunner>> HookRunner::open(Duration time_limit, Cgroups groups) {
  std::unique_ptr<HookRunner> runner(new HookRunner(time_limit, std::move(groups)));
  if (!runner->epoll_) return fail(ErrorCode::io, std::string("could not watch hooks: ") + ::strerror(errno));
  runner->groups_.clear();
  return runner;
}

HookRunner::HookRunner(Duration time_limit, Cgroups groups) : time_limit_(time_limit), groups_(std::move(groups)) {}

HookRunner::~HookRunner() {
  for (const auto& [token, hook] : running_) {
    kill(*hook);
    ::waitpid(hook->pid, nullptr, WNOHANG);  // one that is stuck in the kernel is left behind; init will reap it
    left_.push_back(std::move(hook->group));
  }
  for (int looks = 0; !left_.empty() && looks < kLastLooks; ++looks) {
    clear_left();
    if (!left_.empty()) ::usleep(kLastLookPause);  // the next life of the agent removes what is still there
  }
}

Instant HookRunner::deadline() const {
  if (!ended_.empty()) return Instant{};
  Instant earliest = std::min(look_left_, look_disks_);
  for (const auto& [token, hook] : running_)
    earliest = std::min(earliest, std::min(hook->timed_out ? kNever : hook->limit, hook->news.empty() ? kNever : hook->hand_on));
  return earliest;
}

void HookRunner::refuse(std::uint64_t token, const std::string& cause) {
  job::Exit exit;
  exit.code = kNotExecuted;
  exit.cause = cause;
  ended_.push_back({token, std::move(exit), false});
}

void HookRunner::run(Instant now, node::RunHook effect) {
  if (waiting_.size() >= kHooksWaiting) return refuse(effect.token, "too many hooks wait already");
  const auto of_user = std::ranges::count_if(waiting_, [&](const node::RunHook& other) { return same_user(other.user, effect.user); });
  if (effect.user && static_cast<std::size_t>(of_user) >= kHooksOfUserWaiting)
    return refuse(effect.token, "too many hooks of this user wait already");
  waiting_.push_back(std::move(effect));
  start_waiting(now);
}

void HookRunner::start_waiting(Instant now) {
  while (running_.size() < kHooksAtOnce) {
    const auto next =
        std::ranges::find_if(waiting_, [this](const node::RunHook& effect) { return !effect.user || running_of(effect) < kHooksOfUser; });
    if (next == waiting_.end()) return;
    const node::RunHook effect = std::move(*next);
    waiting_.erase(next);
    start(now, effect);
  }
}

std::size_t HookRunner::running_of(const node::RunHook& effect) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(running_, [&](const auto& entry) { return same_user(entry.second->user, effect.user); }));
}

void HookRunner::end(JobId job, std::uint64_t only) {
  for (auto& [token, hook] : running_)
    if (only != 0 ? token == only : hook->job == job) kill(*hook);
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (only != 0 ? at->token != only : at->job != job) {
      ++at;
      continue;
    }
    refuse(at->token, only != 0 ? "it is not needed any more" : "its job was deleted");
    at = waiting_.erase(at);
  }
}

// Its group is addressed by number only while it is this process's child.
void HookRunner::kill(Hook& hook) {
  kill_group(hook.pid);
  cgroup_kill(hook.group.v2);
}

void HookRunner::clear_left() {
  std::erase_if(left_, [](const Cgroups::Place& place) {
    if (cgroup_populated(place.v2)) return false;
    cgroup_remove(place);
    return true;
  });
}

void HookRunner::start(Instant now, const node::RunHook& effect) {
  if (effect.command.empty()) return refuse(effect.token, "the command is empty");
  const auto user = find_user_to_become(effect.user.value_or(task::User{"", ::geteuid()}));
  if (!user) return refuse(effect.token, user.error().message);
  std::vector<std::string> env_texts;
  auto variables = effect.env;
  if (effect.of_images) variables.merge(engine_surroundings(*user));
  for (const auto& [key, value] : variables) env_texts.push_back(key + "=" + value);
  std::vector<char*> argv, env;
  for (const std::string& argument : effect.command) argv.push_back(const_cast<char*>(argument.c_str()));
  for (std::string& text : env_texts) env.push_back(text.data());
  argv.push_back(nullptr);
  env.push_back(nullptr);

  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) return refuse(effect.token, ::strerror(errno));
  UniqueFd errors(pipe_fds[0]), theirs(pipe_fds[1]);
  // The hook itself gets an ordinary, blocking stderr: the two ends are separate descriptions.
  ::fcntl(pipe_fds[1], F_SETFL, 0);
  auto hook = std::make_unique<Hook>();
  UniqueFd line_pipe;
  if (effect.of_images) {
    if (::pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) return refuse(effect.token, ::strerror(errno));
    hook->lines.reset(pipe_fds[0]);
    line_pipe.reset(pipe_fds[1]);
    ::fcntl(pipe_fds[1], F_SETFL, 0);
  }
  hook->token = effect.token;
  hook->job = effect.job;
  hook->user = effect.user;
  std::vector<std::string> groups;
  if (!effect.leaves && (!groups_.v2().empty() || !groups_.memory_v1().empty())) {
    const auto made = groups_.create("hook-" + std::to_string(effect.token), effect.of_images ? kImageHookMemory : kHookMemory,
                                     effect.of_images ? kImageHookProcesses : kHookProcesses);
    if (!made) return refuse(effect.token, made.error().message);
    hook->group = *made;
    if (!made->v2.empty()) groups.push_back(made->v2 + "/task/cgroup.procs");
    if (!made->memory.empty()) groups.push_back(made->memory + "/cgroup.procs");
  }
  hook->keep_free = effect.of_images;
  if (effect.of_images) {
    hook->images = images_directory(*user);
    look_disks_ = std::min(look_disks_, now + kDiskLookEvery);
  }
  hook->errors = std::move(errors);
  hook->limit = now + (effect.limit > 0ns ? effect.limit : time_limit_);
  hook->pid = ::fork();
  if (hook->pid == 0) become_hook(*user, argv.data(), env.data(), theirs.get(), line_pipe.get(), groups);
  theirs.reset();
  if (hook->pid < 0) {
    const int cause = errno;
    cgroup_remove(hook->group);
    return refuse(effect.token, ::strerror(cause));
  }
  hook->pid_fd.reset(static_cast<int>(::syscall(SYS_pidfd_open, hook->pid, 0)));
  if (!hook->pid_fd || !epoll_.add(hook->pid_fd.get(), effect.token) || !epoll_.add(hook->errors.get(), effect.token) ||
      (hook->lines && !epoll_.add(hook->lines.get(), effect.token))) {
    const int cause = errno;
    ::kill(hook->pid, SIGKILL);
    ::waitpid(hook->pid, nullptr, 0);
    left_.push_back(std::move(hook->group));
    return refuse(effect.token, ::strerror(cause));
  }
  running_.emplace(effect.token, std::move(hook));
}

void HookRunner::read_errors(Hook& hook) {
  char chunk[limits::kStderrTailBytes];
  for (std::size_t i = 0; i < kErrorReads && hook.errors; ++i) {
    const ssize_t n = ::read(hook.errors.get(), chunk, sizeof chunk);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return hook.errors.reset();
    hook.tail.append(chunk, static_cast<std::size_t>(n));
    if (hook.tail.size() > limits::kStderrTailBytes) hook.tail.erase(0, hook.tail.size() - limits::kStderrTailBytes);
  }
}

void HookRunner::read_lines(Hook& hook) {
  char chunk[limits::kStderrTailBytes];
  for (std::size_t i = 0; i < kErrorReads && hook.lines; ++i) {
    const ssize_t n = ::read(hook.lines.get(), chunk, sizeof chunk);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return hook.lines.reset();
    for (const char c : std::string_view(chunk, static_cast<std::size_t>(n))) {
      const bool ends = c == '\n' || c == '\r';
      if (!ends && hook.line.size() < kHookLineBytes) hook.line.push_back(c >= ' ' && c <= '~' ? c : ' ');
      if (ends && !hook.line.empty()) hook.news = std::exchange(hook.line, {});
    }
  }
}

void HookRunner::hand_on_lines(Instant now, EventSink& sink) {
  for (const auto& [token, hook] : running_) {
    if (hook->news.empty() || now < hook->hand_on) continue;
    hook->hand_on = now + kHookLineEvery;
    sink(node::HookProgress{token, std::exchange(hook->news, {})});
  }
}

void HookRunner::reap(Hook& hook) {
  const std::optional<int> status = reap_group(hook.pid);
  if (!status) return;
  read_errors(hook);
  job::Exit exit;
  if (WIFSIGNALED(*status)) exit.signal = WTERMSIG(*status);
  else exit.code = WEXITSTATUS(*status);
  exit.stderr_tail = std::move(hook.tail);
  exit.cause = std::move(hook.cause);
  cgroup_kill(hook.group.v2);  // processes that it left, in whatever session
  left_.push_back(std::move(hook.group));
  ended_.push_back({hook.token, std::move(exit), hook.timed_out});
  running_.erase(hook.token);
}

void HookRunner::watch_disks(Instant now) {
  if (now < look_disks_) return;
  look_disks_ = kNever;
  for (const auto& [token, hook] : running_) {
    struct statvfs space {};
    if (!hook->keep_free || !hook->cause.empty() || ::statvfs(hook->images.c_str(), &space) != 0) continue;
    look_disks_ = now + kDiskLookEvery;
    if (std::uint64_t{space.f_bavail} * space.f_frsize >= hook->keep_free->of(std::uint64_t{space.f_blocks} * space.f_frsize)) continue;
    hook->cause = "the file system of " + hook->images + " has less free than storage.minFree wants";
    kill(*hook);
  }
}

void HookRunner::dispatch(Instant now, EventSink& sink) {
  epoll_event events[kEventsPerTurn];
  for (const epoll_event& event : epoll_.ready(events)) {
    const std::uint64_t token = event.data.u64;  // a copy: the kernel's record is packed
    const auto found = running_.find(token);
    if (found == running_.end()) continue;
    read_errors(*found->second);
    read_lines(*found->second);
    reap(*found->second);
  }
  for (const auto& [token, hook] : running_) {
    if (hook->timed_out || hook->limit > now) continue;
    hook->timed_out = true;
    kill(*hook);
  }
  watch_disks(now);
  clear_left();
  look_left_ = left_.empty() ? kNever : now + kLeftHookGroup;
  start_waiting(now);
  hand_on_lines(now, sink);
  while (!ended_.empty()) {
    sink(std::move(ended_.front()));
    ended_.pop_front();
  }
}

}  // namespace dtrain::proc
