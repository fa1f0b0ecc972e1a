// Runs a system program to its end and keeps its output. Blocks: for short-lived children of the agent, never for its
// loop thread. Also the steps that all who run other programs share.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "agent/proc/become_user.h"
#include "common/base/result.h"

namespace dtrain::proc {

struct HelperProgram {
  std::vector<std::string> argv;            // argv[0] is looked up in the system directories
  std::optional<account::HostUser> run_as;  // unset: as the caller
  int standard_input = -1;                  // -1: /dev/null
};

inline constexpr int kNotExecuted = 127;  // exit code of a child that could not become its program

struct HelperResult {
  int status = 0;      // exit code; 128 + signal; kNotExecuted
  std::string errors;  // first bytes of its stderr, in English
};
inline constexpr std::size_t kHelperErrorBytes = 4096;  // more is read and dropped

Result<HelperResult> run_helper(const HelperProgram& program);

// Resets signals, mask, parent-death signal and priority of a child that was just forked: default handlers, nothing blocked,
// killed when its parent dies, usual priority. To be called again after become(), which cancels the parent-death signal.
void prepare_child();
// The same with the parent's priority, for a child that runs no other program and whose answer the agent waits for.
void prepare_own_child();

// The last step of a forked child (async-signal-safe): executes the program, looked up in the caller's PATH, with
// only the first three descriptors. On failure it says why on stderr and exits with kNotExecuted.
[[noreturn]] void execute(char* const* argv, char* const* env);

// Kills the process group of a child that leads one, or is about to.
void kill_group(pid_t leader);

// The same, and waits for the end of the child.
void end_group(pid_t leader);

// Once such a child has ended, kills what is left in its group and returns its status for waitpid(). nullopt: it has not ended.
std::optional<int> reap_group(pid_t leader);

}  // namespace dtrain::proc
