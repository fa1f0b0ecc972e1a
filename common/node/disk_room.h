// Decides whether this host has disk space for more tasks. Below storage.minFree the host gets no new tasks:
// otherwise the emptiest host would attract every new job and fail it. Pure: judges what the agent saw of each file
// system that tasks need.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace dtrain::node {

// How much of a file system must stay free: `bytes` if not 0, else `percent` of its size.
struct KeepFree {
  std::uint32_t percent = 5;
  std::uint64_t bytes = 0;
  std::uint64_t of(std::uint64_t total) const { return bytes != 0 ? bytes : total / 100 * percent; }
};

struct DiskSeen {
  std::string path;
  std::uint64_t free_bytes = 0, total_bytes = 0;  // free_bytes: for users other than root
};

class DiskRoom {
 public:
  explicit DiskRoom(KeepFree keep) : keep_(keep) {}
  // The host takes tasks again once a tenth more than the minimum is free. Returns true if reason() changed between
  // "" and not "".
  bool looked(const DiskSeen& seen);
  std::string reason() const;  // why the host takes no new tasks; "": it takes them

 private:
  KeepFree keep_;
  // reason by path, with the figure of when it fell short: a figure that changes would be sent to all hosts each time
  std::map<std::string, std::string> short_;
};

}  // namespace dtrain::node
