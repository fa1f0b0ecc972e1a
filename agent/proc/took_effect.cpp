#include "agent/proc/took_effect.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

#include "agent/base/small_file.h"
#include "agent/proc/cgroup.h"

namespace dtrain::proc {

namespace {

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kPageBytes = 1 << 16;                 // the largest page of any kernel: limits of version 1 are whole pages
constexpr std::uint64_t kNoLimitV1 = std::uint64_t{1} << 62;  // version 1 writes "none" as a number about as large as there are

std::string shown(std::uint64_t value) { return value == kNone ? "none" : std::to_string(value); }

std::string shown(const std::vector<std::uint32_t>& cpus) {
  std::string text;
  for (const std::uint32_t cpu : cpus) text += (text.empty() ? "" : ",") + std::to_string(cpu);
  return text;
}

Difference difference(const std::string& kind, const std::string& what, const std::string& asked, const std::string& found,
                      const std::string& next, const std::string& who = "systemd took") {
  return {kind,
          Error{ErrorCode::unavailable, "could not limit " + what + " as asked: " + who + " " + asked + ", in force is " + found, next}};
}

void compare_policy(std::int32_t numa_node, const InForce& seen, const std::string& who, std::vector<Difference>& out) {
  const std::string asked = "prefer:" + std::to_string(numa_node);
  if (numa_node < 0 || seen.memory_policy == asked || seen.memory_policy == "") return;
  out.push_back(difference("numa", "memory to the NUMA node of its CPUs", asked, seen.memory_policy.value_or("unknown"),
                           "check that the kernel knows NUMA, and that the container permits set_mempolicy", who));
}

std::uint64_t number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? value : kNone;  // "max", "unlimited"
}

std::optional<std::uint64_t> number_in(const std::optional<std::string>& directory, const char* file) {
  const auto text = directory ? read_small_file(*directory + "/" + file) : std::nullopt;
  return text ? std::optional(number(*text)) : std::nullopt;
}

// The value after "key:" in /proc/PID/status.
std::optional<std::string> status_value(const std::string& status, const std::string& key) {
  const std::size_t at = status.find("\n" + key + ":");
  if (at == std::string::npos) return std::nullopt;
  const std::size_t first = status.find_first_not_of(" \t", at + key.size() + 2);
  return status.substr(first, status.find('\n', first) - first);
}

// /proc/PID/limits uses names of its own, at the start of a line.
constexpr std::pair<const char*, const char*> kLimitLines[] = {{"Max open files", "NOFILE"},
                                                               {"Max locked memory", "MEMLOCK"},
                                                               {"Max core file size", "CORE"},
                                                               {"Max processes", "NPROC"},
                                                               {"Max stack size", "STACK"}};

}  // namespace

std::vector<std::uint32_t> parse_cpu_list(const std::string& text) {
  std::vector<std::uint32_t> cpus;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t dash = part.find('-');
    const std::uint64_t first = number(part), last = dash == std::string::npos ? first : number(part.substr(dash + 1));
    if (first == kNone || last == kNone) continue;
    for (std::uint64_t cpu = first; cpu <= last; ++cpu) cpus.push_back(static_cast<std::uint32_t>(cpu));
  }
  return cpus;
}

std::vector<Difference> compare(const task::ShimSpec& spec, const UnitHost& host, const InForce& seen) {
  std::vector<Difference> out;
  std::vector<std::uint32_t> cpus = spec.cpus;
  std::sort(cpus.begin(), cpus.end());
  if (!cpus.empty() && seen.cpus != cpus)
    out.push_back(difference("cpus", "CPUs", shown(cpus), seen.cpus ? shown(*seen.cpus) : "unknown",
                             "check the CPUs of dtrain.slice (systemctl show -p AllowedCPUs dtrain.slice)"));
  if (!cpus.empty() && seen.cpu_set != cpus)
    out.push_back(difference("cpu_set", "CPUs of tasks that set their own", shown(cpus), seen.cpu_set ? shown(*seen.cpu_set) : "no CPU set",
                             "boot with cgroup v2 alone (systemd.unified_cgroup_hierarchy=1)"));
  compare_policy(spec.numa_node, seen, "systemd took", out);
  if (spec.memory_bytes > 0) {
    const std::uint64_t memory = seen.memory_bytes.value_or(kNone);
    if (memory > spec.memory_bytes || spec.memory_bytes - memory >= kPageBytes)
      out.push_back(difference("memory", "memory", shown(spec.memory_bytes), shown(memory),
                               "check that the memory controller is there (/proc/cgroups)"));
  }
  if (seen.most_tasks.value_or(kNone) > kMostUnitTasks)
    out.push_back(difference("tasks", "processes", shown(kMostUnitTasks), shown(seen.most_tasks.value_or(kNone)),
                             "check that the pids controller is there (/proc/cgroups)"));
  if (spec.own_gpus && seen.devices_closed == false)
    out.push_back(difference("devices", "devices", "\"closed\"", "nothing", "check that the kernel filters devices by control group"));
  for (const UnitLimit& limit : host.limits) {
    const auto found = seen.limits.find(limit.name);
    if (found == seen.limits.end() || found->second == std::pair(limit.soft, limit.hard)) continue;
    out.push_back(difference("Limit" + limit.name, "Limit" + limit.name, shown(limit.soft) + ":" + shown(limit.hard),
                             shown(found->second.first) + ":" + shown(found->second.second),
                             "raise that of systemd itself: it can give no more than it has"));
  }
  if (seen.oom_score && *seen.oom_score != kShimOomScore)
    out.push_back(difference("oom", "the killing of shims for want of memory", std::to_string(kShimOomScore),
                             std::to_string(*seen.oom_score), "nothing, in a container: there the kernel may choose a shim"));
  return out;
}

std::vector<Difference> compare_cpus(const std::vector<std::uint32_t>& cpus, std::int32_t numa_node, const InForce& seen) {
  std::vector<Difference> out;
  const auto its_own = [&](std::uint32_t cpu) { return std::ranges::find(cpus, cpu) != cpus.end(); };
  // A process that has ended meanwhile has neither.
  if (!seen.cpus) return out;
  if (!cpus.empty() && !std::ranges::all_of(*seen.cpus, its_own))
    out.push_back(difference("cpus", "CPUs", shown(cpus), shown(*seen.cpus),
                             "nothing, where the task chose others itself; else check that they are online and in the agent's CPU set",
                             "asked was"));
  compare_policy(numa_node, seen, "asked was", out);
  return out;
}

InForce look_at_cpus(pid_t pid) {
  InForce seen;
  const std::string proc = "/proc/" + std::to_string(pid);
  const std::string status = read_small_file(proc + "/status").value_or("");
  if (const auto list = status_value(status, "Cpus_allowed_list")) seen.cpus = parse_cpu_list(*list);
  // Each line is a mapping; the first, of the program itself, has no policy of its own and shows that of the process.
  if (const auto maps = read_small_file(proc + "/numa_maps")) {
    std::istringstream first(maps->substr(0, maps->find('\n')));
    std::string address;
    first >> address >> seen.memory_policy.emplace();
  }
  return seen;
}

InForce look_at(pid_t pid) {
  InForce seen = look_at_cpus(pid);
  const std::string proc = "/proc/" + std::to_string(pid);
  const ProcessCgroups cgroups(std::to_string(pid));
  const auto unified = cgroups.in(""), memory = cgroups.in("memory"), pids = cgroups.in("pids"), devices = cgroups.in("devices"),
             cpuset = cgroups.in("cpuset");
  seen.cgroup = unified;
  seen.memory_bytes = memory ? number_in(memory, "memory.limit_in_bytes") : number_in(unified, "memory.max");
  if (memory && seen.memory_bytes.value_or(0) > kNoLimitV1) seen.memory_bytes = kNone;
  seen.most_tasks = number_in(pids ? pids : unified, "pids.max");
  // Only the kernel's table of programs knows that of version 2: taken to be right.
  if (devices)
    if (const auto list = read_small_file(*devices + "/devices.list")) seen.devices_closed = list->rfind("a ", 0) != 0;
  const auto set = cpuset    ? read_small_file(*cpuset + "/cpuset.effective_cpus")
                   : unified ? read_small_file(*unified + "/cpuset.cpus.effective")
                             : std::nullopt;
  if (set) seen.cpu_set = parse_cpu_list(*set);
  std::istringstream lines(read_small_file(proc + "/limits").value_or(""));
  for (std::string line; std::getline(lines, line);)
    for (const auto& [words, name] : kLimitLines) {
      if (line.rfind(words, 0) != 0) continue;
      std::istringstream values(line.substr(std::string(words).size()));
      std::string soft, hard;
      values >> soft >> hard;
      seen.limits[name] = {number(soft), number(hard)};
    }
  if (const auto score = read_small_file(proc + "/oom_score_adj")) seen.oom_score = std::atoi(score->c_str());
  return seen;
}

}  // namespace dtrain::proc
