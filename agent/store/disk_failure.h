// That the disk of the data directory failed, remembered where a reboot of the machine forgets it: RUN/disk-failed holds the boot id.
// Until a reboot, or until all was written anew (Store::rewrite), what is read need not be what is on the disk.
#pragma once

#include <string>

#include "common/base/result.h"

namespace dtrain::store {

Status note_disk_failure(const std::string& run_dir, const std::string& boot_id);
// In this boot. What cannot be read was noted: it is asked before anything is promised.
bool disk_failed(const std::string& run_dir, const std::string& boot_id);
void forget_disk_failure(const std::string& run_dir);

}  // namespace dtrain::store
