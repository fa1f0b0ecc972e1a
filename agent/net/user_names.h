// Names of users by their uid, and the other way round, remembered: a directory service (LDAP, sssd) that is slow or away may hold the
// loop up once per user and period, not at every connection.
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

// Uids by name, likewise.
class UserIds {
 public:
  // nullopt: the directory could not be asked; kNoUid: nobody has that name.
  using Lookup = std::function<std::optional<std::uint32_t>(const std::string& name)>;
  static constexpr std::uint32_t kNoUid = ~std::uint32_t{0};  // as for chown(2)
  explicit UserIds(Lookup lookup) : lookup_(std::move(lookup)) {}

  // kNoUid where nobody has the name. While the directory cannot be asked, as it was last known; nullopt: it never was.
  std::optional<std::uint32_t> uid_of(const std::string& name, Instant now);

 private:
  struct Entry {
    std::optional<std::uint32_t> uid;
    Instant until{};
  };
  const Lookup lookup_;
  std::map<std::string, Entry> uids_;
};

// The host's own directory (getpwuid_r, getpwnam_r); may block as long as that does.
std::optional<std::string> look_up_user(std::uint32_t uid);
std::optional<std::uint32_t> look_up_uid(const std::string& name);

}  // namespace dtrain::net
