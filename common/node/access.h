// Decides who may do what, by the roles in the configuration's section `access`.
//
// The agent that a client is connected to judges by its own configuration. Where another agent carries the request
// out (because the first has no copy of the ledger, or because logs and exec live on the task's host), that agent
// judges again: a request is carried out only if both permit it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <string_view>

#include "common/base/result.h"

namespace dtrain::cluster {
struct JobRecord;
}

namespace dtrain::node {

struct Caller;

enum class Role : std::uint8_t { view, submit, operate };  // each role may do all that the role before it may
std::string_view to_string(Role role);

struct Access {
  std::map<std::string, Role> users;  // by user name: hosts agree on names more often than on uids
  Role fallback = Role::view;         // the role of all users that `users` does not name
};

enum class Deed : std::uint8_t {
  read,    // logs, cluster spec, checkpoints, environment: of one's own jobs; an operator may read those of all jobs
  change,  // cancel, restart, scale ...: likewise, but not for a user whose role is view
  enter,   // exec runs as the job's user: permitted to that user and to root only
};

// Describes for people how `after` differs from `before`: "ada: submit -> view, others: view -> submit"; "" where
// they are equal. At most kDifferenceBytes long, with the number of differences that did not fit.
inline constexpr std::size_t kDifferenceBytes = 512;
std::string difference(const Access& before, const Access& after);

// Returns Role::operate for root and for the user that the agent runs as, whatever `access` says.
Role role_of(const Caller& caller, const Access& access, std::uint32_t agent_uid);

bool owns(const Caller& caller, const cluster::JobRecord& job);

// Error text begins with `could_not`.
Status permit(Deed deed, const Caller& caller, Role role, const cluster::JobRecord& job, const std::string& could_not);
// Judges by the role alone: it must be `least` or more.
Status permit(Role least, const Caller& caller, Role role, const std::string& could_not);

}  // namespace dtrain::node
