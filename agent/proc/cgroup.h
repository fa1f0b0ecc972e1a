// Control groups of the direct launcher. Below the agent's own group, or one that was made for tasks, is a directory of ours, named
// after the tasks directory so that several agents of one host never meet. In it each assignment has one cgroup, its processes in the child
// `task`; all shims are in `shims/shim`, since one may serve several assignments.
//   v2 (unified)   kill, freeze, "is it empty"; a memory limit where the controller can be had
//   v1 (memory)    the memory limit, on hosts whose controllers are still there
// Both are optional: without them the shim works on its tree of descendants, and memory is not limited.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "common/base/result.h"

namespace dtrain::proc {

class Cgroups {
 public:
  // `parent`: the group to use, as a path in every hierarchy ("/dtrain.slice/dtrain-tasks.service"; "": this
  // process's own). It is not created: if it does not exist nothing is limited, and unusable() says why. `name`: of
  // the directory below it.
  static Cgroups open(const std::string& parent, const std::string& name);
  Cgroups() = default;
  Cgroups(Cgroups&& other) noexcept
      : v2_(std::exchange(other.v2_, {})), memory_v1_(std::exchange(other.memory_v1_, {})), unusable_(std::move(other.unusable_)) {}
  Cgroups& operator=(Cgroups&&) = delete;
  ~Cgroups();  // removes its own directories if nothing is left in them

  struct Place {
    std::string v2;      // "" none
    std::string memory;  // v1; "" none
  };
  // Creates the cgroups of one assignment. memory_bytes, processes 0: no limit. `processes` is limited only where its
  // controller is available.
  Result<Place> create(const std::string& assignment, std::uint64_t memory_bytes, std::uint32_t processes = 0) const;
  // Kills processes in groups that create() made in an earlier life of the agent, and removes empty groups.
  void clear() const;

  const std::string& v2() const { return v2_; }  // "" none
  // The cgroup for the next shim, created if it is missing; "": none.
  std::string shims() const;
  const std::string& memory_v1() const { return memory_v1_; }
  // The error if the configured group cannot be used: tasks then stay in the agent's own.
  const std::optional<Error>& unusable() const { return unusable_; }

 private:
  std::string v2_, memory_v1_;
  std::optional<Error> unusable_;
};

// The name of the groups of an agent with this tasks directory: unique on this host, and the same in every life of
// the agent. "": there is no such directory.
std::string cgroup_name_of(const std::string& tasks_dir);

// The cgroups of a process in all hierarchies, at one moment.
class ProcessCgroups {
 public:
  explicit ProcessCgroups(const std::string& process);  // its pid, or "self"
  // The directory in the hierarchy of a version 1 controller, or in the unified one (""). nullopt: that is not
  // mounted, or there was no such process.
  std::optional<std::string> in(const std::string& controller) const;

 private:
  std::string cgroups_, mounts_;  // as /proc has them
};
// The directory, in the hierarchy of that version 1 controller, with the same path as `unified`: systemd names its
// groups alike in all hierarchies. nullopt: there is no such hierarchy.
std::optional<std::string> same_cgroup(const std::string& unified, const std::string& controller);

// Bytes that one more process in that directory of a hierarchy could have: what the limits of memory there and above leave. The cache of
// files counts as free. nullopt: there is no limit.
std::optional<std::uint64_t> memory_left(const std::string& directory);

// For one assignment's v2 cgroup; "" does nothing.
void cgroup_kill(const std::string& cgroup);       // every process in it and below
bool cgroup_populated(const std::string& cgroup);  // false also where it does not exist
// Removes what create() made. Processes must be gone; a directory that is still busy stays.
void cgroup_remove(const Cgroups::Place& place);

}  // namespace dtrain::proc
