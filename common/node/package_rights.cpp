#include "common/node/package_rights.h"

#include <algorithm>

namespace dtrain::node {

void PackageRights::gave(const Caller& caller, const std::string& digest) {
  const User user{caller.user, caller.uid};
  if (gifts_.size() >= kGivingUsers && !gifts_.contains(user)) gifts_.clear();
  std::deque<std::string>& gifts = gifts_[user];
  std::erase(gifts, digest);
  gifts.push_back(digest);
  if (gifts.size() > kGiftsOfUser) gifts.pop_front();
}

bool PackageRights::may_have(const Caller& caller, const std::string& digest) const {
  const auto own = gifts_.find({caller.user, caller.uid});
  if (own != gifts_.end() && std::ranges::find(own->second, digest) != own->second.end()) return true;
  return std::ranges::any_of(ledger_.state().jobs, [&](const auto& entry) {
    const cluster::JobRecord& job = entry.second;
    return job.spec.package_digest == digest && job.user.uid == caller.uid && job.user.name == caller.user;
  });
}

}  // namespace dtrain::node
