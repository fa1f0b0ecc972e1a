#include "agent/proc/health_check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/base/unique_fd.h"
#include "agent/proc/helper_program.h"
#include "common/base/duration_text.h"

namespace dtrain::proc {
namespace {

constexpr Duration kKilledWithin = 1s;  // a killed process that has not ended by then cannot be killed
constexpr int kReadsAtOnce = 8;         // of a chunk each; the loop has other things to do

// Between fork and exec: only calls that are safe there. `argv` and `env` were made before.
[[noreturn]] void become_check(char* const* argv, char* const* env, int output) {
  ::setsid();
  prepare_child();
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(output, STDOUT_FILENO) < 0 || ::dup2(output, STDERR_FILENO) < 0 ||
      ::chdir("/") != 0)
    ::_exit(kNotExecuted);
  execute(argv, env);
}

}  // namespace

struct HealthCheck::Run {
  pid_t pid = -1;
  UniqueFd pid_fd, output;
  Instant limit{};
  bool killed = false;  // it was reported already, or is not to be
  Instant dead_by{};    // for a killed process
  std::string text;

  void kill(Instant now) {
    killed = true;
    dead_by = now + kKilledWithin;
    kill_group(pid);
  }
};

Result<std::unique_ptr<HealthCheck>> HealthCheck::open() {
  std::unique_ptr<HealthCheck> check(new HealthCheck);
  if (!check->epoll_) return fail(ErrorCode::io, std::string("could not watch the health check: ") + ::strerror(errno));
  return check;
}

HealthCheck::HealthCheck() = default;

// A process that is stuck in the kernel is left behind; init will reap it.
HealthCheck::~HealthCheck() {
  if (run_ == nullptr) return;
  kill_group(run_->pid);
  ::waitpid(run_->pid, nullptr, WNOHANG);
}

void HealthCheck::configure(Instant now, Options options) {
  if (options == options_) return;
  options_ = std::move(options);
  next_ = options_.command.empty() ? kNever : now;
  if (run_ != nullptr && !run_->killed) run_->kill(now);
}

Instant HealthCheck::deadline() const {
  if (run_ == nullptr) return next_;
  return run_->killed ? std::max(next_, run_->dead_by) : run_->limit;
}

// Returns what went wrong in the answer's cause; "": it runs.
node::HostCheck HealthCheck::begin(Instant now) {
  node::HostCheck not_begun;
  const auto because = [&](int code) {
    not_begun.cause = std::string("could not be run: ") + ::strerror(code);
    return not_begun;
  };
  std::string path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", language = "LC_ALL=C.UTF-8";
  std::string name = "DTRAIN_NODE=" + options_.node;
  char* env[] = {path.data(), language.data(), name.data(), nullptr};
  std::vector<char*> argv;
  for (std::string& argument : options_.command) argv.push_back(argument.data());
  argv.push_back(nullptr);

  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return because(errno);
  auto run = std::make_unique<Run>();
  run->output = UniqueFd(ends[0]);
  UniqueFd write_end(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);  // concerns only the reader: the two ends are separate descriptions
  run->limit = now + options_.timeout;
  run->pid = ::fork();
  if (run->pid == 0) become_check(argv.data(), env, write_end.get());
  if (run->pid < 0) return because(errno);
  run->pid_fd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, run->pid, 0)));
  if (!run->pid_fd || !epoll_.add(run->pid_fd.get()) || !epoll_.add(run->output.get())) {
    const int code = errno;
    ::kill(run->pid, SIGKILL);
    ::waitpid(run->pid, nullptr, 0);
    return because(code);
  }
  run_ = std::move(run);
  return not_begun;
}

// All output is read, so that a program with much output does not block; what exceeds the limit is dropped.
void HealthCheck::read_output() {
  char chunk[node::kHealthOutputBytes];
  for (int i = 0; i < kReadsAtOnce && run_->output.get() >= 0; ++i) {
    const ssize_t got = ::read(run_->output.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return run_->output.reset();
    run_->text.append(chunk, std::min(static_cast<std::size_t>(got), node::kHealthOutputBytes - run_->text.size()));
  }
}

// Returns false if it has not ended.
bool HealthCheck::reap(node::HostCheck& seen) {
  const std::optional<int> status = reap_group(run_->pid);
  if (!status) return false;
  read_output();
  if (WIFSIGNALED(*status)) seen.signal = WTERMSIG(*status);
  else seen.code = WEXITSTATUS(*status);
  seen.output = std::move(run_->text);
  return true;
}

void HealthCheck::dispatch(Instant now, EventSink& sink) {
  epoll_event events[2];
  (void)epoll_.ready(events);
  if (run_ != nullptr) {
    read_output();
    node::HostCheck seen;
    if (reap(seen)) {
      const bool told = run_->killed;
      run_.reset();
      if (!told) sink(node::HostChecked{std::move(seen)});
    } else if (!run_->killed && run_->limit <= now) {
      run_->kill(now);
      seen.cause = "did not end within " + duration_text(options_.timeout) + ", and was killed";
      seen.output = run_->text;
      sink(node::HostChecked{std::move(seen)});
    }
  }
  if (next_ > now || (run_ != nullptr && deadline() > now)) return;
  next_ = now + options_.every;
  node::HostCheck failed;
  if (run_ != nullptr) failed.cause = "begun earlier (pid " + std::to_string(run_->pid) + ") cannot be killed";
  else failed = begin(now);
  if (!failed.cause.empty()) sink(node::HostChecked{std::move(failed)});
}

}  // namespace dtrain::proc
