#include "agent/host/doctor_facts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "agent/host/address.h"
#include "agent/host/listen_port.h"

namespace dtrain::host {
namespace {

namespace fs = std::filesystem;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// ---------------------------------------------------------------- limits

// Whether a task can be given limits above this process's own: root of a user namespace cannot do that.
bool may_raise_limits() {
  std::ifstream status("/proc/self/status"), map("/proc/self/uid_map");
  std::uint64_t inside = 0, outside = 0, count = 0, effective = 0;
  if (!(map >> inside >> outside >> count) || outside != 0 || count < 0xffffffffu) return false;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("CapEff:")) effective = std::stoull(line.substr(7), nullptr, 16);
  return (effective >> CAP_SYS_RESOURCE & 1) != 0;
}

// ---------------------------------------------------------------- control groups

void look_at_cgroups(node::Examination& out, const std::string& root) {
  std::ifstream mounts(root + "/proc/self/mountinfo");
  static const std::set<std::string> kControllers{"memory", "pids", "cpuset", "devices", "cpu"};
  for (std::string line; std::getline(mounts, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
    std::string skip, mount, type, source, options;
    left >> skip >> skip >> skip >> skip >> mount;
    right >> type >> source >> options;
    if (type == "cgroup2" && !out.cgroup2) {
      out.cgroup2.emplace();
      std::ifstream controllers(root + mount + "/cgroup.controllers");
      for (std::string name; controllers >> name;) out.cgroup2->push_back(name);
    } else if (type == "cgroup") {
      std::istringstream names(options);
      for (std::string name; std::getline(names, name, ',');)
        if (kControllers.contains(name)) out.cgroup1.push_back(name);
    }
  }
}

// ---------------------------------------------------------------- clock

// The kernel's own state; a service that steers the clock keeps it so.
std::optional<bool> clock_synchronised() {
  timex asked{};
  const int state = ::adjtimex(&asked);
  if (state < 0) return std::nullopt;
  return (asked.status & STA_UNSYNC) == 0;
}

// ---------------------------------------------------------------- names

std::vector<node::Lookup> names_to_look_up(const DoctorOptions& options, const std::string& host_name) {
  std::vector<node::Lookup> lookups;
  const auto add = [&](node::Lookup::Of of, const std::string& name) {
    if (!name.empty() && !is_ip(name)) lookups.push_back({of, name, {}, true});
  };
  add(node::Lookup::Of::host, host_name);
  for (const std::string& name : options.terms.join) add(node::Lookup::Of::join, name);
  for (const node::ExamPeer& peer : options.peers) add(node::Lookup::Of::peer, peer.name);
  return lookups;
}

// ---------------------------------------------------------------- ports

constexpr const char* kAgentProgram = "dtraind";  // as the kernel calls it

std::vector<node::ListenTrial> try_to_listen(const node::ExamTerms& terms) {
  std::vector<node::ListenTrial> trials;
  for (const auto& [what, offset] : {std::pair{"gossip", 0}, std::pair{"bulk", 1}}) {
    const auto port = static_cast<std::uint16_t>(terms.port + offset);
    std::optional<PortOwner> owner;
    const auto reserved = ListenPort::reserve({terms.listen_ip, port}, true, &owner);
    trials.push_back({what, port, reserved ? std::nullopt : std::optional(reserved.error()), owner && owner->name == kAgentProgram});
  }
  return trials;
}

std::vector<node::Listener> strangers_on(const DoctorOptions& options) {
  const node::PortSpan& span = options.terms.task_ports;
  std::vector<node::Listener> strangers;
  if (span.first == 0) return strangers;
  for (const PortOwner& owner : listeners(span.first, span.last, kListenersMost)) {
    if (owner.pid != 0 && options.is_task && options.is_task(owner.pid)) continue;
    strangers.push_back({owner.port, owner.text()});
  }
  return strangers;
}

}  // namespace

std::vector<node::TaskLimit> task_limits(const node::ExamTerms& terms) {
  static const std::map<std::string, decltype(RLIMIT_CORE)> kResources{
      {"as", RLIMIT_AS},           {"core", RLIMIT_CORE},     {"cpu", RLIMIT_CPU},     {"data", RLIMIT_DATA},  {"fsize", RLIMIT_FSIZE},
      {"memlock", RLIMIT_MEMLOCK}, {"nofile", RLIMIT_NOFILE}, {"nproc", RLIMIT_NPROC}, {"stack", RLIMIT_STACK}};
  const bool raises = may_raise_limits();
  std::uint64_t most_files = node::kUnlimited;
  std::ifstream("/proc/sys/fs/nr_open") >> most_files;
  std::vector<node::TaskLimit> limits;
  for (const auto& [name, wanted] : terms.ulimits) {
    const auto resource = kResources.find(name);
    rlimit own{};
    if (resource == kResources.end() || ::getrlimit(resource->second, &own) != 0) continue;
    // The agent's service does not limit dtrainctl itself.
    std::uint64_t most = raises || !terms.agent || own.rlim_max == RLIM_INFINITY ? node::kUnlimited : own.rlim_max;
    if (name == "nofile") most = std::min(most, most_files);
    limits.push_back({name, wanted == RLIM_INFINITY ? node::kUnlimited : wanted, most});
  }
  return limits;
}

node::PortSpan local_port_range(const std::string& root) {
  std::ifstream file(root + "/proc/sys/net/ipv4/ip_local_port_range");
  node::PortSpan span;
  if (!(file >> span.first >> span.last)) return {};
  return span;
}

std::vector<node::PortSpan> reserved_ports(const std::string& root) {
  std::vector<node::PortSpan> spans;
  std::istringstream list(first_line(root + "/proc/sys/net/ipv4/ip_local_reserved_ports"));
  for (std::string item; std::getline(list, item, ',');) {
    node::PortSpan span;
    char dash = 0;
    std::istringstream text(item);
    if (!(text >> span.first)) continue;
    span.last = span.first;
    if (text >> dash) text >> span.last;
    spans.push_back(span);
  }
  return spans;
}

node::Disk look_at_disk(const std::string& what, const std::string& path) {
  node::Disk disk;
  disk.what = what;
  disk.path = path;
  // It does not exist yet: the directory where it would be.
  std::string at = path;
  while (!at.empty() && at != "/" && !exists(at)) at = fs::path(at).parent_path().string();
  struct statvfs room {};
  struct statfs kind {};
  if (at.empty() || ::statvfs(at.c_str(), &room) != 0 || ::statfs(at.c_str(), &kind) != 0) {
    disk.error = at.empty() ? "the path is not absolute" : ::strerror(errno);
    return disk;
  }
  disk.total = room.f_blocks * room.f_frsize;
  disk.free = room.f_bavail * room.f_frsize;
  disk.inodes = room.f_files;
  disk.inodes_free = room.f_favail;
  disk.read_only = (room.f_flag & ST_RDONLY) != 0;
  disk.no_exec = (room.f_flag & ST_NOEXEC) != 0;
  disk.in_memory = kind.f_type == TMPFS_MAGIC || kind.f_type == RAMFS_MAGIC;
  return disk;
}

node::Examination examine(const DoctorOptions& options) {
  node::Examination out;
  out.terms = options.terms;
  out.root = ::geteuid() == 0;
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) == 0) out.host_name = name;
  const node::ExamTerms& terms = options.terms;
  if (!terms.agent && !terms.listen_ip.empty()) out.trials = try_to_listen(terms);
  out.local_ports = local_port_range(options.root);
  out.reserved_ports = reserved_ports(options.root);
  out.strangers = strangers_on(options);
  if (!terms.advertise.empty()) out.advertise_interface = interface_of(terms.advertise);
  if (!terms.task_address.empty()) out.task_interface = interface_of(terms.task_address);
  out.clock_synchronised = clock_synchronised();
  out.limits = task_limits(terms);
  look_at_cgroups(out, options.root);
  for (const auto& [what, path] : terms.directories) out.disks.push_back(look_at_disk(what, path));
  out.nvidia = gpu_driver("0x10de", options.root);
  out.amd = gpu_driver("0x1002", options.root);
  out.contacts = try_contacts(options.peers);
  out.lookups = names_to_look_up(options, out.host_name);
  look_up(out.lookups, kLookupsWithin);
  return out;
}

}  // namespace dtrain::host
