// `run` after the submit: shows progress and logs until every task of the job reached a final state.
#pragma once

#include <cstdint>
#include <string>

#include "agent/dtrainctl/commands.h"

namespace dtrain::ctl {

inline constexpr auto kLogDrain = std::chrono::seconds(10);  // for the rest of the logs, once the job has ended

struct FollowOptions {
  std::string job;
  std::uint64_t id = 0;
  bool cancel_on_exit = false;
  bool raw = false;  // escape sequences of tasks reach the terminal
};

// Exit code: 0 Succeeded, 1 otherwise, 130 detached. On a terminal ^C asks whether to cancel; elsewhere a signal
// detaches, or cancels with cancel_on_exit (then a second one detaches).
int follow_job(Session& session, const FollowOptions& options);

// The job file of `run [options] -- CMD...`: tensorflow when there is a ps or a chief, else generic; started in
// `directory`.
std::string job_file_of(const RunOptions& options, const std::string& directory);

}  // namespace dtrain::ctl
