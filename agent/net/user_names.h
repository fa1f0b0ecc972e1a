// Names of users by their uid, remembered: a directory service (LDAP, sssd) that is slow or away may hold the
// loop up once per user and period, not at every connection.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/base/time.h"

namespace dtrain::net {

inline constexpr std::size_t kUserNames = 1024;    // beyond: the one that expires first is forgotten
inline constexpr Duration kUserNameKept = 10min;   // then it is asked for again: users are renamed, seldom
inline constexpr Duration kNoUserNameKept = 1min;  // of a uid without a name: it may be given one any moment

class UserNames {
 public:
  // "" : nobody has that uid; nullopt: the directory could not be asked.
  using Lookup = std::function<std::optional<std::string>(std::uint32_t uid)>;
  explicit UserNames(Lookup lookup);

  // "" when the uid has no name. While the directory cannot be asked the last name known stays.
  const std::string& name_of(std::uint32_t uid, Instant now);
  std::size_t size() const { return names_.size(); }

 private:
  struct Entry {
    std::string name;
    Instant until{};
  };
  const Lookup lookup_;
  std::map<std::uint32_t, Entry> names_;
};

// The host's own directory (getpwuid_r); may block as long as that does.
std::optional<std::string> look_up_user(std::uint32_t uid);

}  // namespace dtrain::net
