// The result of a command: refused, with the reason, or done to a job. Used only by the parts of Ledger::apply.
#pragma once

#include <string>
#include <utility>

#include "common/cluster/ledger.h"

namespace dtrain::cluster {

inline Applied refused(ErrorCode code, std::string message, std::string next = "") {
  Applied a;
  a.status = fail(code, std::move(message), std::move(next));
  return a;
}

inline Applied done(const JobRecord& job) {
  Applied a;
  a.job = job.id;
  a.name = job.spec.name;
  return a;
}

}  // namespace dtrain::cluster
