// Caches names of users by uid, and uids by name: a slow or absent directory service (LDAP, sssd) may hold the loop
// up once for each user and period, but not at every connection.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/base/time.h"

namespace dtrain::net {

inline constexpr std::size_t kUserNames = 1024;    // of each kind; beyond: the one that expires first is forgotten
inline constexpr Duration kUserNameKept = 10min;   // then the name is looked up again, because users may be renamed
inline constexpr Duration kNoUserNameKept = 1min;  // for a uid without a name, which may be given one at any time

class UserNames {
 public:
  // Returns "" if nobody has that uid; nullopt: the directory could not be asked.
  using Lookup = std::function<std::optional<std::string>(std::uint32_t uid)>;
  explicit UserNames(Lookup lookup);

  // "" when the uid has no name. While the directory cannot be asked, the last known name is returned.
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

// Uids by name, in the same way.
class UserIds {
 public:
  // nullopt: the directory could not be asked; kNoUid: nobody has that name.
  using Lookup = std::function<std::optional<std::uint32_t>(const std::string& name)>;
  static constexpr std::uint32_t kNoUid = ~std::uint32_t{0};  // the value that chown(2) takes for "no uid"
  explicit UserIds(Lookup lookup) : lookup_(std::move(lookup)) {}

  // kNoUid if nobody has the name. While the directory cannot be asked, the last known uid is returned; nullopt: none
  // was ever known.
  std::optional<std::uint32_t> uid_of(const std::string& name, Instant now);

 private:
  struct Entry {
    std::optional<std::uint32_t> uid;
    Instant until{};
  };
  const Lookup lookup_;
  std::map<std::string, Entry> uids_;
};

// Asks the host's own directory (getpwuid_r, getpwnam_r); may block as long as that does.
std::optional<std::string> look_up_user(std::uint32_t uid);
std::optional<std::uint32_t> look_up_uid(const std::string& name);

}  // namespace dtrain::net
