// Remembers that the data directory's disk failed until the machine reboots: RUN/disk-failed holds the boot id. Until
// a reboot, or until everything was written anew (Store::rewrite), data that is read may not be on the disk.
#pragma once

#include <string>

#include "common/base/result.h"

namespace dtrain::store {

Status note_disk_failure(const std::string& run_dir, const std::string& boot_id);
// True if it failed in this boot. An unreadable note counts as one, since promises depend on it.
bool disk_failed(const std::string& run_dir, const std::string& boot_id);
void forget_disk_failure(const std::string& run_dir);

}  // namespace dtrain::store
