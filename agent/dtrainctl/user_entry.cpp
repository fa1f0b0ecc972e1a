#include "agent/dtrainctl/user_entry.h"

#include <pwd.h>

namespace dtrain::ctl {

void add_user_entry(std::vector<wire::TaskSpecView>& tasks) {
  for (wire::TaskSpecView& task : tasks) {
    // The job may set another USER; it hardly ever sets LOGNAME.
    const auto user = task.env.find("LOGNAME");
    const passwd* entry = user == task.env.end() ? nullptr : ::getpwnam(user->second.c_str());
    if (entry == nullptr) continue;
    if (*entry->pw_dir != '\0') task.env.try_emplace("HOME", entry->pw_dir);
    task.env.try_emplace("SHELL", *entry->pw_shell != '\0' ? entry->pw_shell : "/bin/sh");
  }
}

}  // namespace dtrain::ctl
