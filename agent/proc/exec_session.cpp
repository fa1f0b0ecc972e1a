#include "agent/proc/exec_session.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <limits>

#include "agent/base/small_file.h"
#include "agent/proc/become_user.h"
#include "agent/proc/helper_program.h"

namespace dtrain::proc {

namespace {

constexpr int kChunksPerTurn = 4;  // of one stream
constexpr int kKillRounds = 3;     // repeated, for processes that appeared meanwhile
constexpr mode_t kTaskUmask = 022;
constexpr int kLastSignal = 64;
constexpr char kEndOfInput = '\x04';  // what a terminal takes for it (VEOF)

// The child's report when it fails before it becomes the command.
struct LaunchError {
  enum Step : int { cgroup, user, directory, terminal, command, image };
  int step = 0;
  int error = 0;
};

Error system_error(const std::string& what) {
  return Error{ErrorCode::io, "could not " + what + ": " + cause_of(errno), "raise the limits of processes and open files"};
}

bool make_pipe(UniqueFd& read_end, UniqueFd& write_end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  read_end.reset(ends[0]);
  write_end.reset(ends[1]);
  return true;
}

bool make_nonblocking(const UniqueFd& fd) { return ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK) == 0; }

winsize window(std::uint32_t rows, std::uint32_t columns) {
  constexpr std::uint32_t kMost = std::numeric_limits<unsigned short>::max();
  winsize size{};
  size.ws_row = static_cast<unsigned short>(std::min(rows, kMost));
  size.ws_col = static_cast<unsigned short>(std::min(columns, kMost));
  return size;
}

// Everything that the child needs, made before the fork: nothing is allocated after it.
struct Launch {
  std::vector<std::string> cgroup_files;
  account::HostUser user;
  std::string work_dir;
  std::vector<std::string> env_text;
  std::vector<char*> argv, env;
  bool terminal = false;
  int input = -1, output = -1, errors = -1, report = -1;
  UniqueFd users, mounts, processes;  // namespaces of the image, where it has its own
};

[[noreturn]] void launch_failed(const Launch& launch, LaunchError::Step step) {
  const LaunchError error{step, errno};
  (void)!::write(launch.report, &error, sizeof error);
  ::_exit(EXIT_FAILURE);
}

void join_cgroup(const Launch& launch, const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return;
  if (fd < 0 || ::write(fd, "0", 1) != 1) launch_failed(launch, LaunchError::cgroup);
  ::close(fd);
}

// Ends as that child does. Signals reach the child, which is in the same group. What this process keeps open would have no end for others.
[[noreturn]] void end_like(pid_t child) {
  ::close_range(STDERR_FILENO + 1, ~0u, 0);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFSIGNALED(status)) ::_exit(WEXITSTATUS(status));
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::sigemptyset(&all);
  ::kill(::getpid(), WTERMSIG(status));
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::_exit(EXIT_FAILURE);
}

// As the image's user, who owns its namespaces. Only children are in the one of processes.
void enter_image(const Launch& launch) {
  for (const auto& [space, kind] :
       {std::pair{launch.users.get(), CLONE_NEWUSER}, {launch.mounts.get(), CLONE_NEWNS}, {launch.processes.get(), CLONE_NEWPID}})
    if (space >= 0 && ::setns(space, kind) != 0) launch_failed(launch, LaunchError::image);
  const pid_t child = ::fork();
  if (child < 0) launch_failed(launch, LaunchError::image);
  if (child > 0) end_like(child);
}

[[noreturn]] void run_child(const Launch& launch) {
  prepare_child();
  ::setsid();
  for (const std::string& path : launch.cgroup_files) join_cgroup(launch, path);
  if (::dup2(launch.input, STDIN_FILENO) < 0 || ::dup2(launch.output, STDOUT_FILENO) < 0 || ::dup2(launch.errors, STDERR_FILENO) < 0 ||
      (launch.terminal && ::ioctl(STDIN_FILENO, TIOCSCTTY, 0) != 0))
    launch_failed(launch, LaunchError::terminal);
  if (!become(launch.user)) launch_failed(launch, LaunchError::user);
  if (launch.mounts) enter_image(launch);
  prepare_child();
  ::umask(kTaskUmask);
  if (::chdir(launch.work_dir.c_str()) != 0) launch_failed(launch, LaunchError::directory);
  environ = const_cast<char**>(launch.env.data());
  ::execvp(launch.argv[0], launch.argv.data());
  launch_failed(launch, LaunchError::command);
}

std::string describe(const LaunchError& error, const std::string& command) {
  switch (error.step) {
    case LaunchError::cgroup: return "could not join the task's cgroup: " + cause_of(error.error);
    case LaunchError::user: return "could not become the task's user: " + cause_of(error.error);
    case LaunchError::image: return "could not enter the task's image: " + cause_of(error.error);
    case LaunchError::directory: return "could not enter the task's working directory: " + cause_of(error.error);
    case LaunchError::terminal: return "could not set up its terminal: " + cause_of(error.error);
    default: return "could not execute " + command + ": " + cause_of(error.error);
  }
}

// The namespace of that process if it is another than this process's.
UniqueFd other_namespace(int pid, const char* kind) {
  struct stat own {
  }, other{};
  UniqueFd space(::open(("/proc/" + std::to_string(pid) + "/ns/" + kind).c_str(), O_RDONLY | O_CLOEXEC));
  const bool same = !space || ::fstat(space.get(), &other) != 0 || ::stat((std::string("/proc/self/ns/") + kind).c_str(), &own) != 0 ||
                    (own.st_ino == other.st_ino && own.st_dev == other.st_dev);
  return same ? UniqueFd() : std::move(space);
}

struct Belonging {
  int group = 0, session = 0;  // 0: the process is gone
};

// From /proc/<pid>/stat. The name before the numbers may contain any character.
Belonging belonging_of(const std::string& pid) {
  const std::string stat = read_small_file("/proc/" + pid + "/stat").value_or("");
  Belonging found;
  char state = 0;
  int parent = 0;
  if (const std::size_t at = stat.rfind(')'); at != std::string::npos)
    std::sscanf(stat.c_str() + at + 1, " %c %d %d %d", &state, &parent, &found.group, &found.session);
  return found;
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? std::string("SIG") + name : std::to_string(number);
}

}  // namespace

Result<std::unique_ptr<ExecSession>> ExecSession::start(const wire::ExecRequest& request, const ExecPlace& place) {
  if (request.command.empty() || request.command.front().empty())
    return fail(ErrorCode::invalid, "could not execute: there is no command", "dtrainctl exec JOB TASK -- COMMAND");
  const auto user = find_user_to_become(place.user);
  if (!user) return fail(user.error());
  std::unique_ptr<ExecSession> session(new ExecSession);
  session->terminal_ = request.terminal;
  session->command_ = request.command.front();
  if (!session->epoll_) return fail(system_error("execute " + session->command_));
  ChildEnds ends;
  const Status opened = request.terminal ? session->open_terminal(request, *user, ends) : session->open_pipes(ends);
  if (!opened) return fail(opened.error());
  const Status launched = place.run_beside ? session->launch_in_task(request, place, ends) : session->launch(request, place, *user, ends);
  if (!launched) return fail(launched.error());
  return session;
}

Status ExecSession::open_pipes(ChildEnds& ends) {
  if (make_pipe(ends.input, input_) && make_pipe(output_, ends.output) && make_pipe(errors_, ends.errors) && make_nonblocking(input_) &&
      make_nonblocking(output_) && make_nonblocking(errors_))
    return {};
  return fail(system_error("execute " + command_));
}

Status ExecSession::open_terminal(const wire::ExecRequest& request, const account::HostUser& user, ChildEnds& ends) {
  output_.reset(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!output_ || ::grantpt(output_.get()) != 0 || ::unlockpt(output_.get()) != 0)
    return fail(system_error("open a terminal for " + command_));
  const winsize size = window(request.rows, request.columns);
  ::ioctl(output_.get(), TIOCSWINSZ, &size);
  ends.input.reset(::ioctl(output_.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  ends.output.reset(::fcntl(ends.input.get(), F_DUPFD_CLOEXEC, 0));
  ends.errors.reset(::fcntl(ends.input.get(), F_DUPFD_CLOEXEC, 0));
  input_.reset(::fcntl(output_.get(), F_DUPFD_CLOEXEC, 0));
  if (!ends.input || !ends.output || !ends.errors || !input_ || !make_nonblocking(output_) ||
      (::geteuid() == 0 && ::fchown(ends.input.get(), user.uid, static_cast<gid_t>(-1)) != 0))
    return fail(system_error("open a terminal for " + command_));
  return {};
}

Status ExecSession::launch(const wire::ExecRequest& request, const ExecPlace& place, const account::HostUser& user, const ChildEnds& ends) {
  Launch launch;
  launch.user = user;
  launch.work_dir = place.work_dir;
  launch.terminal = terminal_;
  for (const std::string& cgroup : place.cgroups)
    if (!cgroup.empty()) launch.cgroup_files.push_back(cgroup + "/cgroup.procs");
  for (const std::string& argument : request.command) launch.argv.push_back(const_cast<char*>(argument.c_str()));
  launch.argv.push_back(nullptr);
  std::map<std::string, std::string> env = place.env;
  if (terminal_ && !request.term.empty()) env["TERM"] = request.term;
  for (const auto& [name, value] : env) launch.env_text.push_back(name + "=" + value);
  for (std::string& text : launch.env_text) launch.env.push_back(text.data());
  launch.env.push_back(nullptr);
  UniqueFd report;
  if (!make_pipe(launch_error_, report) || !make_nonblocking(launch_error_)) return fail(system_error("execute " + command_));
  launch.input = ends.input.get();
  launch.output = ends.output.get();
  launch.errors = ends.errors.get();
  launch.report = report.get();
  if (place.inside != 0) {
    launch.users = other_namespace(place.inside, "user");
    launch.mounts = other_namespace(place.inside, "mnt");
    launch.processes = other_namespace(place.inside, "pid");
    if (!launch.mounts) return fail(ErrorCode::unavailable, "could not execute " + command_ + ": the task's image is gone", "try again");
  }
  pid_ = ::fork();
  if (pid_ < 0) return fail(system_error("execute " + command_));
  if (pid_ == 0) run_child(launch);
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_) return fail(system_error("watch " + command_));
  watch(pidfd_.get(), EPOLLIN);
  watch(output_.get(), EPOLLIN);
  if (errors_) watch(errors_.get(), EPOLLIN);
  return {};
}

ExecSession::~ExecSession() {
  if (reaped_) return;
  if (task_socket_) signal_all(SIGKILL);
  if (pid_ <= 0) return;
  signal_session(SIGKILL);
  ::waitpid(pid_, nullptr, WNOHANG);  // one that hangs in the kernel is left until this process ends
}

void ExecSession::watch(int fd, std::uint32_t events) {
  // It can only fail when kernel memory runs out; then output comes with the next event.
  (void)epoll_.add(fd, 0, events);
}

// Explicitly: a terminal's two descriptors are one file to epoll, which forgets it only with both.
void ExecSession::unwatch(UniqueFd& fd) {
  epoll_.remove(fd.get());
  fd.reset();
}

Status ExecSession::input(const wire::ExecInput& input) {
  if (terminal_ && input.rows > 0 && input.columns > 0 && output_) {
    const winsize size = window(input.rows, input.columns);
    ::ioctl(output_.get(), TIOCSWINSZ, &size);  // the kernel sends SIGWINCH
  }
  if (input.signal > 0 && input.signal <= kLastSignal && !reaped_) {
    // The group may be long gone, and its number may belong to another: a terminal keeps only the number.
    const pid_t foreground = terminal_ && output_ ? ::tcgetpgrp(output_.get()) : -1;
    if (foreground > 0 && foreground != pid_) signal_session(input.signal, foreground);
    else if (task_socket_) signal_all(input.signal);
    else ::kill(-pid_, input.signal);
  }
  if (input_ended_ || !input_) return {};
  if (pending_.size() + input.bytes.size() > kExecInputBytes)
    return fail(ErrorCode::limit,
                "could not pass input to " + command_ + ": it has not read the last " + std::to_string(kExecInputBytes) + " bytes",
                "send less at once, or through a file");
  pending_ += input.bytes;
  if (input.end) {
    input_ended_ = true;
    if (terminal_) pending_ += kEndOfInput;
  }
  write_input();
  return {};
}

void ExecSession::write_input() {
  while (input_ && !pending_.empty()) {
    const ssize_t n = ::write(input_.get(), pending_.data(), pending_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {  // the command reads no more, so its remaining input is dropped
      pending_.clear();
      input_ended_ = true;
      break;
    }
    pending_.erase(0, static_cast<std::size_t>(n));
  }
  if (!input_) return;
  if (pending_.empty() && input_ended_) {
    unwatch(input_);
    input_watched_ = false;
  } else if (pending_.empty() == input_watched_) {
    if (input_watched_) epoll_.remove(input_.get());
    else watch(input_.get(), EPOLLOUT);
    input_watched_ = !input_watched_;
  }
}

void ExecSession::set_paused(bool paused) {
  if (paused == paused_) return;
  paused_ = paused;
  for (const UniqueFd* fd : {&output_, &errors_}) {
    if (!*fd) continue;
    if (paused) epoll_.remove(fd->get());  // a hang-up is told even to who asks for nothing
    else watch(fd->get(), EPOLLIN);
  }
}

void ExecSession::room_again() { set_paused(false); }

void ExecSession::read_output(UniqueFd& from, bool is_stderr, node::ConnectionId connection, std::uint64_t request, Outlet& outlet) {
  for (int chunk = 0; chunk < kChunksPerTurn && from; ++chunk) {
    if (outlet.room(connection) < kStreamMessageBytes) return set_paused(true);
    wire::ExecOutput output;
    output.is_stderr = is_stderr;
    output.bytes.resize(kStreamChunkBytes);
    const ssize_t n = ::read(from.get(), output.bytes.data(), output.bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return unwatch(from);  // the end; a terminal reports EIO
    output.bytes.resize(static_cast<std::size_t>(n));
    outlet.send(connection, wire::make_message(wire::MessageType::exec_output, request, output, false));
  }
}

// Signals every process of the session, including groups that a shell made in it, or only those of `group`. The
// leader must not have been reaped, or its number could belong to another. Other processes may end at any time, so
// each is first held by a descriptor and then checked to be of the session.
void ExecSession::signal_session(int number, int group) {
  if (group == 0) ::kill(-pid_, number);
  for (int round = 0; round < (number == SIGKILL ? kKillRounds : 1); ++round) {
    DIR* proc = ::opendir("/proc");
    if (proc == nullptr) return;
    bool any = false;
    while (const dirent* entry = ::readdir(proc)) {
      const std::string name = entry->d_name;
      int process = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
      if (error != std::errc() || end != name.data() + name.size() || process == pid_ || belonging_of(name).session != pid_) continue;
      const UniqueFd held(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
      const Belonging found = belonging_of(name);
      if (!held || found.session != pid_ || (group != 0 && found.group != group)) continue;
      any = true;
      ::syscall(SYS_pidfd_send_signal, held.get(), number, nullptr, 0);
    }
    ::closedir(proc);
    if (!any) return;
  }
}

void ExecSession::reap_if_ended(Instant now) {
  if (reaped_) return;
  if (task_socket_) {
    if (!ended_in_task()) return;
    reaped_ = true;
    unwatch(task_socket_);
    act_at_ = now + kExecGrace;
    return;
  }
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) return;
  signal_session(SIGKILL);
  while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  unwatch(pidfd_);
  act_at_ = now + kExecGrace;
}

std::optional<Error> ExecSession::failure() {
  LaunchError error;
  if (task_failure_ || ::read(launch_error_.get(), &error, sizeof error) != static_cast<ssize_t>(sizeof error)) return task_failure_;
  return Error{ErrorCode::invalid, describe(error, command_), "check the command and the task's environment"};
}

// To the whole session.
void ExecSession::signal_all(int number) {
  if (!task_socket_) {
    signal_session(number);
    return;
  }
  const auto order = static_cast<std::int32_t>(number);
  (void)!::send(task_socket_.get(), &order, sizeof order, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool ExecSession::turn(Instant now, node::ConnectionId connection, std::uint64_t request, Outlet& outlet) {
  write_input();
  reap_if_ended(now);
  read_output(output_, false, connection, request, outlet);
  read_output(errors_, true, connection, request, outlet);
  if (!reaped_) return false;
  // A process that left the session may keep the output open: it is not waited for without end.
  if (paused_ || outlet.room(connection) < kStreamMessageBytes) {
    set_paused(true);
    act_at_ = kNever;
    return false;
  }
  if (act_at_ == kNever) act_at_ = now + kExecGrace;
  if ((output_ || errors_) && now < act_at_) return false;
  if (const auto failed = failure()) {
    outlet.send(connection, wire::make_message(wire::MessageType::error, request, wire::error_reply(*failed)));
    return true;
  }
  wire::ExecOutput last;
  last.exit.emplace();
  if (WIFSIGNALED(status_)) last.exit->signal = signal_name(WTERMSIG(status_));
  else last.exit->code = WEXITSTATUS(status_);
  outlet.send(connection, wire::make_message(wire::MessageType::exec_output, request, last));
  return true;
}

void ExecSession::hang_up(Instant now) {
  for (UniqueFd* fd : {&output_, &errors_, &input_})
    if (*fd) unwatch(*fd);
  if (reaped_) return;
  signal_all(SIGHUP);
  if (task_socket_) signal_all(SIGCONT);  // a stopped process could not react
  else ::kill(-pid_, SIGCONT);
  act_at_ = now + kExecGrace;
}

bool ExecSession::leave(Instant now) {
  if (!reaped_ && now >= act_at_) {
    signal_all(SIGKILL);
    act_at_ = kNever;
  }
  reap_if_ended(now);
  return reaped_;
}

}  // namespace dtrain::proc
