#include "agent/proc/helper_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "agent/base/unique_fd.h"
#include "agent/proc/scheduling.h"

namespace dtrain::proc {

namespace {

// Nothing of the agent's environment may change what the program does (TAR_OPTIONS, LANG).
constexpr std::array<const char*, 3> kEnvironment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", nullptr};

[[noreturn]] void run_child(const HelperProgram& program, int errors) {
  prepare_child();
  int input = program.standard_input;
  if (input < 0) input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int output = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (::dup2(errors, STDERR_FILENO) < 0 || ::dup2(input, STDIN_FILENO) < 0 || ::dup2(output, STDOUT_FILENO) < 0) ::_exit(kNotExecuted);
  if (program.run_as) {
    if (!become(*program.run_as)) {
      const std::string cause = "could not become user id " + std::to_string(program.run_as->uid) + ": " + std::strerror(errno);
      (void)!::write(STDERR_FILENO, cause.data(), cause.size());
      ::_exit(kNotExecuted);
    }
    prepare_child();
  }
  std::vector<char*> argv;
  for (const std::string& argument : program.argv) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  environ = const_cast<char**>(kEnvironment.data());
  execute(argv.data(), environ);
}

}  // namespace

void prepare_own_child() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void prepare_child() {
  prepare_own_child();
  become_usual();
}

void execute(char* const* argv, char* const* env) {
  // Not only by exec, which may hang on a file system that is away while connections of others would stay open.
  ::close_range(STDERR_FILENO + 1, ~0u, 0);
  ::execvpe(argv[0], argv, env);
  const char* cause = ::strerrordesc_np(errno);
  for (const char* part : {"could not execute ", static_cast<const char*>(argv[0]), ": ", cause})
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  ::_exit(kNotExecuted);
}

void kill_group(pid_t leader) {
  ::kill(-leader, SIGKILL);
  ::kill(leader, SIGKILL);  // it may not lead a group yet
}

void end_group(pid_t leader) {
  kill_group(leader);
  while (::waitpid(leader, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<int> reap_group(pid_t leader) {
  siginfo_t ended{};
  if (::waitid(P_PID, static_cast<id_t>(leader), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != leader) return std::nullopt;
  ::kill(-leader, SIGKILL);  // while the number still belongs to it
  int status = 0;
  ::waitpid(leader, &status, 0);
  return status;
}

Result<HelperResult> run_helper(const HelperProgram& program) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail(ErrorCode::io, "could not run " + program.argv[0] + ": " + std::strerror(errno));
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return fail(ErrorCode::io, "could not run " + program.argv[0] + ": " + std::strerror(errno));
  if (pid == 0) run_child(program, write_end.get());
  write_end.reset();
  HelperResult result;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t got = ::read(read_end.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    const std::size_t room = kHelperErrorBytes - result.errors.size();
    result.errors.append(buffer.data(), std::min(room, static_cast<std::size_t>(got)));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return fail(ErrorCode::io, "could not wait for " + program.argv[0] + ": " + std::strerror(errno));
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  while (!result.errors.empty() && result.errors.back() == '\n') result.errors.pop_back();
  return result;
}

}  // namespace dtrain::proc
