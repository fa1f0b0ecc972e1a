// Who may do what: the roles of the configuration's section `access`.
//
// The agent that a client is connected to judges by its own configuration. Where another carries the request out (without a copy of
// the ledger; logs and exec on the task's host) that one judges again: what both let through is done.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <string_view>

#include "common/base/result.h"
#include "common/wire/control.h"

namespace dtrain::cluster {
struct JobRecord;
}

namespace dtrain::node {

struct Caller;

enum class Role : std::uint8_t { view, submit, operate };  // each may what the one before may
std::string_view to_string(Role role);

struct Access {
  std::map<std::string, Role> users;  // by name; not by uid, which differs between hosts more often
  Role fallback = Role::view;         // of all others
};

enum class Deed : std::uint8_t {
  read,    // logs, cluster spec, checkpoints, environment: of one's own jobs, as operator of all
  change,  // cancel, restart, scale ...: likewise, and no longer by whom the configuration lets view alone
  enter,   // exec runs as the job's user: nobody's but one's own, and root's
};

// What of `before` is other in `after`, for people: "ada: submit -> view, others: view -> submit"; "": nothing. At most
// kDifferenceBytes, and how many are left out.
inline constexpr std::size_t kDifferenceBytes = 512;
std::string difference(const Access& before, const Access& after);

// Root and the user as whom the agent runs operate, whatever `access` says.
Role role_of(const Caller& caller, const Access& access, std::uint32_t agent_uid);

bool owns(const Caller& caller, const cluster::JobRecord& job);

// `could_not` begins the error.
Status permit(Deed deed, const Caller& caller, Role role, const cluster::JobRecord& job, const std::string& could_not);
Status permit_submit(const Caller& caller, Role role);
Status permit_operate(const Caller& caller, Role role, const std::string& could_not);
// What this agent does not carry out itself: whose job it is others know.
Status permit_passing(wire::MessageType type, const Caller& caller, Role role, const std::string& could_not);

}  // namespace dtrain::node
