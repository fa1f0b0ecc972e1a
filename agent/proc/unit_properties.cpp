#include "agent/proc/unit_properties.h"

#include <linux/mempolicy.h>

#include <algorithm>
#include <chrono>

namespace dtrain::proc {

namespace {

std::uint64_t microseconds(Duration duration) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(duration).count());
}

// What "closed" leaves out and training uses: verbs of RDMA, images of Apptainer, networks of containers, memory that
// processes of one host share.
constexpr const char* kEveryTasksDevices[] = {
    "char-infiniband_verbs", "/dev/infiniband/rdma_cm", "/dev/fuse", "/dev/net/tun", "/dev/knem", "/dev/xpmem"};

void confine(const task::ShimSpec& spec, const UnitHost& host, std::vector<UnitProperty>& out) {
  if (!spec.cpus.empty()) {
    out.push_back({"AllowedCPUs", bit_mask(spec.cpus)});
    out.push_back({"CPUAffinity", bit_mask(spec.cpus)});  // where the hierarchy of cpusets is not systemd's
  }
  if (spec.numa_node >= 0) {
    out.push_back({"NUMAPolicy", std::int32_t{MPOL_PREFERRED}});
    out.push_back({"NUMAMask", bit_mask({static_cast<std::uint32_t>(spec.numa_node)})});
  }
  if (spec.memory_bytes > 0) out.push_back({"MemoryMax", spec.memory_bytes});
  out.push_back({"TasksMax", kMostUnitTasks});
  if (!spec.own_gpus) return;
  DeviceRules allowed;
  for (const char* device : kEveryTasksDevices) allowed.rules.emplace_back(device, "rw");
  for (const std::string& device : host.devices) allowed.rules.emplace_back(device, "rw");
  out.push_back({"DevicePolicy", std::string("closed")});
  out.push_back({"DeviceAllow", std::move(allowed)});
}

}  // namespace

std::vector<UnitProperty> unit_properties(const task::ShimSpec& spec, const UnitHost& host) {
  const Duration stop = std::min(spec.stop_grace, kMostStopGrace) + kStopMargin;
  const std::string task = spec.id.task.text(), generation = std::to_string(spec.id.generation);
  std::vector<UnitProperty> out = {
      {"Description", spec.job_name + " " + task + ", generation " + generation},
      {"Slice", std::string(kTasksSlice)},
      // When the host shuts down, tasks end first: they may write a last checkpoint.
      {"After", std::vector<std::string>{kTasksUnit, "network.target", "remote-fs.target"}},
      // When both stop, the agent ends first: it would restart what ends.
      {"Before", std::vector<std::string>{kAgentUnit}},
      {"StopPropagatedFrom", std::vector<std::string>{kStopUnit}},
      {"CollectMode", std::string("inactive-or-failed")},
      {"Type", std::string("exec")},
      {"NotifyAccess", std::string("none")},
      {"ExecStart", Command{host.shim_path, {"dtrain-shim", host.directory, host.unit}}},
      {"WorkingDirectory", host.directory},
      // The shim passes SIGTERM on; what is left after the time is killed with it.
      {"KillMode", std::string("mixed")},
      {"TimeoutStopUSec", microseconds(stop)},
      // The shim makes the task a cgroup of its own below the unit's.
      {"Delegate", true},
      // Otherwise a task that is killed because memory ran out would take its shim along, which must report that.
      {"OOMPolicy", std::string("continue")},
      {"OOMScoreAdjust", std::int32_t{kShimOomScore}},
      {"Nice", std::int32_t{kShimNiceness}},
      {"StandardOutput", std::string("journal")},
      {"StandardError", std::string("null")},
      {"SyslogIdentifier", std::string("dtrain-task")},
      {"SyslogLevelPrefix", false},
      {"LogExtraFields", JournalFields{{"DTRAIN_JOB=" + spec.job_name, "DTRAIN_TASK=" + task, "DTRAIN_GENERATION=" + generation}}},
      // As for the agent's service (systemd/dtraind.service.in has the reasons), since tasks no longer inherit its settings.
      {"CapabilityBoundingSet", host.capabilities},
      {"SystemCallFilter", CallFilter{false, {"@reboot", "@swap", "@raw-io"}}},
      {"SystemCallErrorNumber", std::int32_t{1}},  // EPERM
      {"KeyringMode", std::string("private")},
  };
  for (const UnitLimit& limit : host.limits) {
    out.push_back({"Limit" + limit.name, limit.hard});
    out.push_back({"Limit" + limit.name + "Soft", limit.soft});
  }
  confine(spec, host, out);
  return out;
}

std::string unit_name(const AssignmentId& id, std::uint32_t random) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "dtrain-" + id.text() + "-";
  for (int shift = 28; shift >= 0; shift -= 4) name.push_back(kDigits[random >> shift & 15]);
  return name + ".service";
}

Bytes bit_mask(const std::vector<std::uint32_t>& numbers) {
  Bytes mask;
  for (const std::uint32_t number : numbers) {
    if (mask.size() <= number / 8) mask.resize(number / 8 + 1);
    mask[number / 8] = static_cast<std::uint8_t>(mask[number / 8] | 1u << number % 8);
  }
  return mask;
}

}  // namespace dtrain::proc
