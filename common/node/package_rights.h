// Decides who may use which package in a job: a user who uploaded all of its bytes to this agent, and a user who has
// a job with it. Knowing the digest is not enough, since others may come to know it.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "common/cluster/ledger.h"
#include "common/node/event.h"

namespace dtrain::node {

// uploads remembered of one user; the oldest is forgotten, and its package must be uploaded again
inline constexpr std::size_t kGiftsOfUser = 64;
inline constexpr std::size_t kGivingUsers = 1024;  // users whose uploads are remembered; beyond, all are forgotten

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
  std::map<User, std::deque<std::string>> gifts_;  // uploads in this agent's life
};

// The part of a digest that everybody may see: it tells packages apart, and nobody can get a package with it.
inline std::string shown_digest(const std::string& digest) { return digest.substr(0, 12); }

}  // namespace dtrain::node
