// dtrain-rsh HOST COMMAND...: what mpirun calls in place of ssh, from inside a task. HOST is the name of a task of the same job; the
// command becomes a part of that task (docs/launching.md). ssh's options are taken, and mean nothing.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <string_view>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/failure.h"

namespace dtrain::ctl {
namespace {

constexpr int kBySignal = 128;                                    // codes from there on, and kNotLaunched
constexpr std::string_view kWithValue = "BbcDEeFIiJLlmOopQRSWw";  // ssh's options that have one

int give_up(const std::string& cause, const std::string& next) {
  std::cerr << "dtrain-rsh: " << cause << "; " << next << "\n";
  return kNotLaunched;
}

// Hydra does not look at how its launcher ends, and waits for ever for a proxy that was killed or never began.
void end_hydra(pid_t caller) {
  if (std::getenv("HYDRA_LAUNCHER_EXEC") == nullptr && std::getenv("I_MPI_HYDRA_BOOTSTRAP_EXEC") == nullptr) return;
  std::ifstream file("/proc/" + std::to_string(caller) + "/comm");
  std::string name;
  if (std::getline(file, name) && (name.starts_with("mpirun") || name.starts_with("mpiexec"))) ::kill(caller, SIGKILL);
}

int run(int argc, char** argv) {
  bool no_input = false;
  int at = 1;
  for (; at < argc && argv[at][0] == '-'; ++at) {
    const std::string_view option = argv[at];
    no_input = no_input || option == "-n";
    if (option.size() == 2 && kWithValue.find(option[1]) != std::string_view::npos) ++at;
  }
  if (at + 1 >= argc) return give_up("could not launch a program: no host and command are given", "usage: dtrain-rsh HOST COMMAND...");
  const char* const job = std::getenv("DTRAIN_JOB");
  const char* const agent = std::getenv("DTRAIN_AGENT");
  if (job == nullptr) return give_up("could not launch a program: DTRAIN_JOB is not set", "call dtrain-rsh from inside a task");
  ExecOptions options;
  options.launches = true;
  options.job = job;
  options.task = argv[at];
  if (const auto user = options.task.rfind('@'); user != std::string::npos) options.task.erase(0, user + 1);
  options.task.erase(std::min(options.task.find('.'), options.task.size()));  // worker-1.JOB in the hostfile
  std::string words;
  for (++at; at < argc; ++at) words += (words.empty() ? "" : " ") + std::string(argv[at]);
  // Open MPI's daemons look for dtrain-rsh by the name that mpirun has of it.
  // The job's directory for temporary files is one for all its tasks on that host: two daemons there would clean up each other's.
  options.command = {"/bin/sh", "-c",
                     "PATH=$PATH${DTRAIN_RSH:+:${DTRAIN_RSH%/*}}; "
                     "[ -z \"$TMPDIR\" ] || { mkdir -p \"$TMPDIR/$DTRAIN_TASK\" && export TMPDIR=\"$TMPDIR/$DTRAIN_TASK\"; }; " +
                         words};
  if (no_input) {
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || ::dup2(null, STDIN_FILENO) < 0) return give_up("could not open /dev/null", "raise the limit of open files");
  }
  Io io{std::cout, std::cerr, STDIN_FILENO, false, false, false, 0};
  Globals globals;
  if (agent != nullptr) globals.agent.at = agent;
  Session session(io, globals);
  const pid_t caller = ::getppid();
  const int code = cmd_exec(session, options);
  if (code >= kBySignal && ::getppid() == caller) end_hydra(caller);
  return code;
}

}  // namespace
}  // namespace dtrain::ctl

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  try {
    return dtrain::ctl::run(argc, argv);
  } catch (const std::exception& e) {  // out of memory, or a bug: the user never sees an abort
    std::cerr << "dtrain-rsh: could not go on: " << e.what() << "\n";
  }
  return dtrain::ctl::kNotLaunched;
}
