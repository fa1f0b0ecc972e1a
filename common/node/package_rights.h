// Who may name which package in a job: who has given all of its bytes to this agent, and who has a job with it. A digest alone is no right
// to what it stands for: others may come to know it.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "common/cluster/ledger.h"
#include "common/node/event.h"

namespace dtrain::node {

inline constexpr std::size_t kGiftsOfUser = 64;    // of one user, remembered; the oldest is forgotten, and is to be given again
inline constexpr std::size_t kGivingUsers = 1024;  // at so many all are forgotten

class PackageRights {
 public:
  explicit PackageRights(const cluster::Ledger& ledger) : ledger_(ledger) {}
  void gave(const Caller& caller, const std::string& digest);
  bool may_have(const Caller& caller, const std::string& digest) const;

 private:
  struct User {
    std::string name;
    std::uint32_t uid = 0;
    auto operator<=>(const User&) const = default;
  };
  const cluster::Ledger& ledger_;
  std::map<User, std::deque<std::string>> gifts_;  // in the life of this agent
};

// What may be shown of a digest to everybody: it tells packages apart, and gets nobody one.
inline std::string shown_digest(const std::string& digest) { return digest.substr(0, 12); }

}  // namespace dtrain::node
