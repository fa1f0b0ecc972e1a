// Has this host room on its disks for more tasks? Below storage.minFree it is given none: the emptiest host would else draw every new
// job and fail it. Pure: judges what the agent saw of each file system that tasks need.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace dtrain::node {

// What is to stay free of a file system: so many bytes where not 0, else so many per cent of it.
struct KeepFree {
  std::uint32_t percent = 5;
  std::uint64_t bytes = 0;
  std::uint64_t of(std::uint64_t total) const { return bytes != 0 ? bytes : total / 100 * percent; }
};

struct DiskSeen {
  std::string path;
  std::uint64_t free_bytes = 0, total_bytes = 0;  // free: for users other than root
};

class DiskRoom {
 public:
  explicit DiskRoom(KeepFree keep) : keep_(keep) {}
  // Takes tasks again once a tenth more than is to stay free is free. True: what reason() says changed between "" and not "".
  bool looked(const DiskSeen& seen);
  std::string reason() const;  // why the host takes no new tasks; "": it does

 private:
  KeepFree keep_;
  std::map<std::string, std::string> short_;  // by path, as it was when it fell short: a figure that moves would be news to all hosts
};

}  // namespace dtrain::node
