#include "agent/net/user_names.h"

#include <errno.h>
#include <pwd.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace dtrain::net {
namespace {

constexpr std::size_t kEntryBytes = 16 << 10;  // of a directory's entry; for a longer one the directory counts as unavailable

// Directories report "nobody" in different ways (getpwuid_r(3)).
bool is_nobody(int code) { return code == 0 || code == ENOENT || code == ESRCH; }

}  // namespace

UserNames::UserNames(Lookup lookup) : lookup_(std::move(lookup)) {}

const std::string& UserNames::name_of(std::uint32_t uid, Instant now) {
  auto found = names_.find(uid);
  if (found != names_.end() && now < found->second.until) return found->second.name;
  std::optional<std::string> name = lookup_(uid);
  if (found == names_.end()) {
    if (names_.size() >= kUserNames)
      names_.erase(std::ranges::min_element(names_, {}, [](const auto& entry) { return entry.second.until; }));
    found = names_.emplace(uid, Entry{}).first;
  }
  Entry& entry = found->second;
  if (name) entry.name = std::move(*name);
  entry.until = now + (entry.name.empty() ? kNoUserNameKept : kUserNameKept);
  return entry.name;
}

std::optional<std::uint32_t> UserIds::uid_of(const std::string& name, Instant now) {
  auto found = uids_.find(name);
  if (found != uids_.end() && now < found->second.until) return found->second.uid;
  const std::optional<std::uint32_t> uid = lookup_(name);
  if (found == uids_.end()) {
    if (uids_.size() >= kUserNames) uids_.erase(std::ranges::min_element(uids_, {}, [](const auto& entry) { return entry.second.until; }));
    found = uids_.emplace(name, Entry{}).first;
  }
  Entry& entry = found->second;
  if (uid) entry.uid = uid;
  entry.until = now + (entry.uid && *entry.uid != kNoUid ? kUserNameKept : kNoUserNameKept);
  return entry.uid;
}

std::optional<std::string> look_up_user(std::uint32_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(kEntryBytes);
  const int code = ::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  if (found) return found->pw_name;
  if (is_nobody(code)) return "";
  return std::nullopt;
}

std::optional<std::uint32_t> look_up_uid(const std::string& name) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(kEntryBytes);
  const int code = ::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found) return found->pw_uid;
  if (is_nobody(code)) return UserIds::kNoUid;
  return std::nullopt;
}

}  // namespace dtrain::net
