// What the kernel was really told about a shim that systemd started, against what systemd was asked for. On some hosts (hybrid control
// groups, containers) it accepts and shows limits that nobody enforces. And about an attempt that a shim gave CPUs itself.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/proc/unit_properties.h"
#include "common/base/result.h"

namespace dtrain::proc {

// nullopt: there is nothing that would enforce it, or that could be asked.
struct InForce {
  std::optional<std::string> cgroup;                      // unified; nullopt: there is no such process
  std::optional<std::vector<std::uint32_t>> cpus;         // of the process itself, which it may change within cpu_set
  std::optional<std::vector<std::uint32_t>> cpu_set;      // of its control group
  std::optional<std::string> memory_policy;               // of the process, in the kernel's words: "default", "prefer:1"; "": it has ended
  std::optional<std::uint64_t> memory_bytes, most_tasks;  // UINT64_MAX: none
  std::optional<bool> devices_closed;
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> limits;  // soft and hard, by UnitLimit::name
  std::optional<int> oom_score;
};

struct Difference {
  std::string kind;  // of which one word is enough for all tasks
  Error error;
};

// Pure.
std::vector<Difference> compare(const task::ShimSpec& spec, const UnitHost& host, const InForce& seen);

// Of an attempt with CPUs of its own that no systemd confines (launch_file.h). It may use fewer of them: that is its own choice, or the
// host has switched some off. Pure.
std::vector<Difference> compare_cpus(const std::vector<std::uint32_t>& cpus, std::int32_t numa_node, const InForce& seen);

// Of a living process. Reads /proc and the control groups that it is in, and nothing else.
InForce look_at(pid_t pid);
// What compare_cpus() needs, and no more.
InForce look_at_cpus(pid_t pid);

// "0-2,8" as numbers.
std::vector<std::uint32_t> parse_cpu_list(const std::string& text);

}  // namespace dtrain::proc
