// The transient unit of one assignment: everything that systemd is told about it, as a table. Pure: what is the host's (device nodes,
// limits of the agent) is given. Why each line: docs/shim.md.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/task/shim_spec.h"

namespace dtrain::proc {

inline constexpr std::uint64_t kMostUnitTasks = 1 << 16;  // processes and threads of one assignment: more than a training has, far
                                                          // fewer than a fork bomb needs to be felt by others
inline constexpr Duration kMostStopGrace{5min};           // of the job's stopGracePeriod, at the host's stop: it waits for nobody longer
inline constexpr Duration kStopMargin{10s};               // behind it: then systemd kills what is left
inline constexpr int kShimNiceness = -10;                 // as a directly launched one inherits it (scheduling.h)
inline constexpr int kShimOomScore = -500;                // the task dies before the shim that reports it
inline constexpr char kTasksUnit[] = "dtrain-tasks.service";
inline constexpr char kStopUnit[] = "dtrain-units.target";  // whose stop is that of all tasks (systemd/dtrain-units.target)
inline constexpr char kAgentUnit[] = "dtraind.service";
inline constexpr char kTasksSlice[] = "dtrain.slice";

// Each as systemd's bus interface wants it (org.freedesktop.systemd1(5)).
using Bytes = std::vector<std::uint8_t>;  // ay
struct Command {                          // a(sasb)
  std::string path;
  std::vector<std::string> argv;
  bool operator==(const Command&) const = default;
};
struct DeviceRules {  // a(ss): node or class, of r, w and m
  std::vector<std::pair<std::string, std::string>> rules;
  bool operator==(const DeviceRules&) const = default;
};
struct CallFilter {  // (bas)
  bool allow = false;
  std::vector<std::string> names;
  bool operator==(const CallFilter&) const = default;
};
struct JournalFields {  // aay: NAME=value
  std::vector<std::string> fields;
  bool operator==(const JournalFields&) const = default;
};
using PropertyValue = std::variant<bool, std::int32_t, std::uint64_t, std::string, std::vector<std::string>, Bytes, Command, DeviceRules,
                                   CallFilter, JournalFields>;
struct UnitProperty {
  std::string name;
  PropertyValue value;
};

struct UnitLimit {
  std::string name;                  // as in LimitNOFILE=
  std::uint64_t soft = 0, hard = 0;  // RLIM_INFINITY: none
};

// What the unit gets of the host's.
struct UnitHost {
  std::string shim_path, directory, unit;  // of dtrain-shim; of the assignment; unit_name()
  std::vector<UnitLimit> limits;           // the agent's own: what a directly launched shim inherits
  std::uint64_t capabilities = 0;          // the agent's bounding set
  std::vector<std::string> devices;        // nodes of the task's GPUs, what their drivers need beside them, and the host's choice
};

std::vector<UnitProperty> unit_properties(const task::ShimSpec& spec, const UnitHost& host);

// "dtrain-17.2.worker-0-1a2b3c4d.service": no two launches ever have the same, so that none waits for an older one to be forgotten.
std::string unit_name(const AssignmentId& id, std::uint32_t random);

// One bit each, the lowest first.
Bytes bit_mask(const std::vector<std::uint32_t>& numbers);

}  // namespace dtrain::proc
