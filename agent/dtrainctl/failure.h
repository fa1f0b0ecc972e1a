// The failures of dtrainctl, and the exit codes for them (docs/contract.md).
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job/manifest.h"
#include "common/wire/control.h"

namespace dtrain::ctl {

enum ExitCode : int {
  kDone = 0,
  kJobFailed = 1,  // also if what was asked for did not succeed
  kUsage = 2,      // usage, or an invalid file
  kNotFound = 3,
  kUnreachable = 4,  // no agent, or no answer in time
  kRefused = 5,
  kWaitTimedOut = 6,
  kDetached = 130,  // ^C without a terminal: the job runs on
};

// One or more errors, as an agent or the job file's parser reports them.
struct Failure {
  std::vector<wire::ErrorItem> items;  // never empty
  bool lost = false;                   // the connection broke: the same request may be sent again elsewhere
  bool late = false;                   // no answer came in time: the request may have been carried out

  Failure() = default;
  Failure(const Error& e) : items(wire::error_reply(e).errors) {}  // NOLINT: an Error is a Failure of one item
  ErrorCode code() const { return items.empty() ? ErrorCode::internal : items.front().code; }
};

template <class T>
using Outcome = tl::expected<T, Failure>;

inline tl::unexpected<Failure> failed(ErrorCode code, std::string message, std::string next = "") {
  return tl::unexpected<Failure>(Failure(Error{code, std::move(message), std::move(next)}));
}
inline tl::unexpected<Failure> failed(Failure f) { return tl::unexpected<Failure>(std::move(f)); }

ExitCode exit_code(ErrorCode code);

// All mistakes of a job file.
Failure file_failure(const std::vector<job::FileError>& errors);

// For people: `FILE:LINE: PATH: message; next`, one line each; without a file `dtrainctl: message; next`.
std::string failure_text(const Failure& f);

}  // namespace dtrain::ctl
