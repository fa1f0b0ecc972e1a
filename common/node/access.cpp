#include "common/node/access.h"

#include <utility>

#include "common/cluster/state.h"
#include "common/node/event.h"

namespace dtrain::node {
namespace {

tl::unexpected<Error> refused(const Caller& caller, Role least, const std::string& could_not, const std::string& because) {
  const std::string who = caller.user.empty() ? "uid " + std::to_string(caller.uid) : caller.user;
  return fail(
      ErrorCode::refused, could_not + ": " + because,
      "ask an administrator for the role `" + std::string(to_string(least)) + "` (access.users." + who + " in dtraind.yaml of the agents)");
}

}  // namespace

std::string_view to_string(Role role) {
  switch (role) {
    case Role::view: return "view";
    case Role::submit: return "submit";
    case Role::operate: return "operate";
  }
  return "";
}

std::string difference(const Access& before, const Access& after) {
  std::map<std::string, std::pair<std::string, std::string>> roles;  // by user: the role before and after
  for (const auto& [user, role] : before.users) roles[user] = {std::string(to_string(role)), "none of their own"};
  for (const auto& [user, role] : after.users) {
    std::string& was = roles.try_emplace(user, "none of their own", "").first->second.first;
    roles[user] = {was, std::string(to_string(role))};
  }
  std::string text;
  std::size_t left_out = 0;
  const auto add = [&](const std::string& who, const std::string& was, const std::string& is) {
    if (was == is) return;
    const std::string part = (text.empty() ? "" : ", ") + who + ": " + was + " -> " + is;
    if (text.size() + part.size() > kDifferenceBytes) ++left_out;
    else text += part;
  };
  add("others", std::string(to_string(before.fallback)), std::string(to_string(after.fallback)));
  for (const auto& [user, role] : roles) add(user, role.first, role.second);
  return left_out == 0 ? text : text + (text.empty() ? "" : ", ") + std::to_string(left_out) + " more";
}

Role role_of(const Caller& caller, const Access& access, std::uint32_t agent_uid) {
  if (caller.uid == 0 || caller.uid == agent_uid) return Role::operate;
  const auto known = caller.user.empty() ? access.users.end() : access.users.find(caller.user);
  return known == access.users.end() ? access.fallback : known->second;
}

bool owns(const Caller& caller, const cluster::JobRecord& job) {
  // A job runs as the user with the submitter's name on each host; another host's uid may be somebody else's.
  return caller.uid == 0 || (caller.uid == job.user.uid && caller.user == job.user.name);
}

Status permit(Deed deed, const Caller& caller, Role role, const cluster::JobRecord& job, const std::string& could_not) {
  if (!owns(caller, job) && (deed == Deed::enter || role < Role::operate))
    return fail(ErrorCode::refused, could_not + ": it belongs to " + job.user.name, "ask them or an administrator");
  if (deed != Deed::read && role < Role::submit) return refused(caller, Role::submit, could_not, caller.user + " may only look");
  return {};
}

Status permit(Role least, const Caller& caller, Role role, const std::string& could_not) {
  if (role >= least) return {};
  if (least == Role::operate) return refused(caller, least, could_not, "only operators may");
  return refused(caller, least, "could not submit as " + caller.user, "this agent lets " + caller.user + " only look");
}

}  // namespace dtrain::node
