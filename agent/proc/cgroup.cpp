#include "agent/proc/cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>

#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"
#include "agent/dtrain-shim/vfork_clone.h"

namespace dtrain::proc {

namespace {

// Two levels, as for a task, so that dtrain-hold finds both in the same way.
constexpr const char *kShimsParent = "/shims", *kShims = "/shims/shim";

// Where a hierarchy is mounted, and a process's place in it.
struct Hierarchy {
  std::string mount, own;
  std::string path(const std::string& other = "") const {
    const std::string& inside = other.empty() ? own : other;
    return inside == "/" ? mount : mount + inside;
  }
};

// Its path in the hierarchy of `controller` ("" for v2), from /proc/PID/cgroup.
std::optional<std::string> path_of(const std::string& cgroups, const std::string& controller) {
  std::istringstream lines(cgroups);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controller.empty() ? controllers == ",," : controllers.find("," + controller + ",") != std::string::npos)
      return line.substr(second + 1);
  }
  return std::nullopt;
}

// mountinfo: id parent device ROOT MOUNTPOINT options [tags] - FSTYPE source SUPEROPTIONS
std::optional<Hierarchy> find_hierarchy(const std::string& cgroups, const std::string& mounts, const std::string& controller) {
  const auto own = path_of(cgroups, controller);
  if (!own) return std::nullopt;
  const std::string type = controller.empty() ? "cgroup2" : "cgroup";
  std::istringstream lines(mounts);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
    std::string id, parent, device, root, mount, fstype, source, options;
    left >> id >> parent >> device >> root >> mount;
    right >> fstype >> source >> options;
    if (fstype != type) continue;
    if (!controller.empty() && ("," + options + ",").find("," + controller + ",") == std::string::npos) continue;
    if (root == "/") return Hierarchy{mount, *own};
    // Only a part of the hierarchy is mounted (a container without a cgroup namespace).
    if (own->compare(0, root.size(), root) == 0) return Hierarchy{mount, own->size() == root.size() ? "/" : own->substr(root.size())};
  }
  return std::nullopt;
}

std::string read_cgroups(const std::string& process) { return read_small_file("/proc/" + process + "/cgroup").value_or(""); }
std::string read_mounts() { return read_small_file("/proc/self/mountinfo", 8 << 20).value_or(""); }

std::optional<Hierarchy> own_hierarchy(const std::string& controller) {
  return find_hierarchy(read_cgroups("self"), read_mounts(), controller);
}

bool make_directory(const std::string& path) { return ::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST; }

// Only if the controller is available; refused (EBUSY) below a cgroup that has processes of its own.
void pass_controllers(const std::string& own) {
  for (const char* controller : {"+memory", "+pids"}) {
    write_control(own.substr(0, own.rfind('/')) + "/cgroup.subtree_control", controller);
    write_control(own + "/cgroup.subtree_control", controller);
  }
}

[[noreturn]] void exit_at_once(void*) { _exit(0); }

// True if a process can be born in a child of `directory`, and the needed controls exist there.
bool usable(const std::string& directory) {
  const std::string probe = directory + "/probe-" + std::to_string(getpid());
  if (!make_directory(probe)) return false;
  bool ok = false;
  const UniqueFd fd(::open(probe.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd && ::access((probe + "/cgroup.kill").c_str(), W_OK) == 0 && ::access((probe + "/cgroup.freeze").c_str(), W_OK) == 0) {
    clone_args args{};
    args.flags = shim::kVforkFlags | CLONE_INTO_CGROUP;
    args.exit_signal = SIGCHLD;
    args.cgroup = static_cast<std::uint64_t>(fd.get());
    const long pid = shim::vfork_clone(
        &args, [](void* context) { exit_at_once(context); }, nullptr);
    // The process must also survive: some kernels kill a newborn if the cgroup of its parent was ever killed.
    int status = 0;
    ok = pid > 0 && ::waitpid(static_cast<pid_t>(pid), &status, 0) == pid && WIFEXITED(status);
  }
  ::rmdir(probe.c_str());
  return ok;
}

bool has_word(const std::string& path, const std::string& word) {
  std::istringstream words(read_small_file(path).value_or(""));
  for (std::string w; words >> w;)
    if (w == word) return true;
  return false;
}

// The number that a file holds, or that follows a name in it. nullopt: it says "max", or cannot be read.
std::optional<std::uint64_t> number_after(const std::string& path, const std::string& name = "") {
  std::istringstream words(read_small_file(path).value_or(""));
  std::string word;
  while (!name.empty() && words >> word && word != name) continue;
  std::uint64_t number = 0;
  return words >> number ? std::optional(number) : std::nullopt;
}

tl::unexpected<Error> io_error(const std::string& what) {
  return fail(ErrorCode::io, "could not create cgroup " + what + ": " + cause_of(errno));
}

}  // namespace

ProcessCgroups::ProcessCgroups(const std::string& process) : cgroups_(read_cgroups(process)), mounts_(read_mounts()) {}

std::optional<std::string> ProcessCgroups::in(const std::string& controller) const {
  const auto found = find_hierarchy(cgroups_, mounts_, controller);
  return found ? std::optional(found->path()) : std::nullopt;
}

std::optional<std::string> same_cgroup(const std::string& unified, const std::string& controller) {
  const auto v2 = own_hierarchy(""), v1 = own_hierarchy(controller);
  if (!v2 || !v1 || unified.compare(0, v2->mount.size(), v2->mount) != 0) return std::nullopt;
  return v1->mount + unified.substr(v2->mount.size());
}

Cgroups Cgroups::open(const std::string& parent, const std::string& name) {
  Cgroups result;
  std::string cause = "there is no cgroup v2";
  if (const auto v2 = own_hierarchy("")) {
    const std::string own = v2->path(parent) + "/" + name;
    if (!make_directory(own)) {
      const int error = errno;
      cause = v2->path(parent) + ": " + cause_of(error);
    } else if (usable(own)) {
      result.v2_ = own;
      pass_controllers(own);
    } else {
      cause = "no process can be started in " + own;
      ::rmdir(own.c_str());
    }
  }
  if (!parent.empty() && result.v2_.empty())
    result.unusable_ = Error{ErrorCode::unavailable, "could not use tasks.cgroup " + parent + ": " + cause,
                             "start what makes it (systemctl start dtrain-tasks), then restart the agent; until then tasks lie in the "
                             "agent's own group, without memory limits"};
  if (const auto v1 = own_hierarchy("memory")) {
    const std::string own = v1->path(parent) + "/" + name;
    if (make_directory(own)) {
      if (::access((own + "/memory.limit_in_bytes").c_str(), W_OK) == 0) result.memory_v1_ = own;
      else ::rmdir(own.c_str());
    }
  }
  return result;
}

Cgroups::~Cgroups() {
  if (!v2_.empty())
    for (const std::string& directory : {v2_ + kShims, v2_ + kShimsParent, v2_}) ::rmdir(directory.c_str());
  if (!memory_v1_.empty()) ::rmdir(memory_v1_.c_str());
}

// An empty cgroup is made anew: it may have been killed, and some kernels kill what is born from there. If it cannot
// be made, the launch reports that.
std::string Cgroups::shims() const {
  if (v2_.empty()) return "";
  const std::string shims = v2_ + kShims;
  ::rmdir(shims.c_str());
  make_directory(v2_ + kShimsParent);
  make_directory(shims);
  return shims;
}

Result<Cgroups::Place> Cgroups::create(const std::string& assignment, std::uint64_t memory_bytes, std::uint32_t processes) const {
  Place place;
  const std::string limit = std::to_string(memory_bytes);
  bool limited = memory_bytes == 0;
  if (!v2_.empty()) {
    place.v2 = v2_ + "/" + assignment;
    bool made = ::mkdir(place.v2.c_str(), 0755) == 0;
    if (!made && errno == ENOENT && make_directory(v2_)) {
      // dtrain-tasks.service was restarted beside this agent, and its group with it.
      pass_controllers(v2_);
      made = make_directory(place.v2);
    } else if (!made && errno == EEXIST) {
      // An existing one belongs to an agent and a shim that were killed: it may be frozen, and some kernels kill what
      // is born in a cgroup that was killed.
      cgroup_remove(place);
      made = make_directory(place.v2);
    }
    if (!made) return io_error(place.v2);
    if (!make_directory(place.v2 + "/task")) return io_error(place.v2 + "/task");
    if (!limited && has_word(place.v2 + "/cgroup.controllers", "memory")) {
      if (!write_control(place.v2 + "/cgroup.subtree_control", "+memory") || !write_control(place.v2 + "/task/memory.max", limit))
        return io_error(place.v2 + " with its memory limit");
      limited = true;
    }
    if (processes != 0 && write_control(place.v2 + "/cgroup.subtree_control", "+pids"))
      write_control(place.v2 + "/task/pids.max", std::to_string(processes));
  }
  if (!limited && !memory_v1_.empty()) {
    place.memory = memory_v1_ + "/" + assignment;
    make_directory(memory_v1_);
    if (!make_directory(place.memory) || !write_control(place.memory + "/memory.limit_in_bytes", limit))
      return io_error(place.memory + " with its memory limit");
  }
  return place;
}

void Cgroups::clear() const {
  for (const std::string& top : {v2_, memory_v1_}) {
    std::error_code error;
    for (std::filesystem::directory_iterator at(top, error), end; !top.empty() && !error && at != end; at.increment(error)) {
      if (!at->is_directory(error)) continue;
      const std::string group = at->path().string();
      if (top == v2_) cgroup_kill(group);
      cgroup_remove(top == v2_ ? Place{group, ""} : Place{"", group});
    }
  }
}

std::string cgroup_name_of(const std::string& tasks_dir) {
  struct stat info {};
  if (::stat(tasks_dir.c_str(), &info) != 0) return "";
  return "dtrain-" + std::to_string(info.st_dev) + "-" + std::to_string(info.st_ino);
}

std::optional<std::uint64_t> memory_left(const std::string& directory) {
  struct Names {
    const char *limit, *used, *idle, *active;
  };
  constexpr Names kNames[] = {{"/memory.max", "/memory.current", "inactive_file", "active_file"},
                              {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file", "total_active_file"}};
  std::optional<std::uint64_t> least;
  for (std::string at = directory; at.size() > 1; at.resize(at.rfind('/')))
    for (const auto& [limit, used, idle, active] : kNames) {
      const auto most = number_after(at + limit), now = number_after(at + used);
      if (!most || !now) continue;
      const std::string stat = at + "/memory.stat";
      const std::uint64_t cache = number_after(stat, idle).value_or(0) + number_after(stat, active).value_or(0);
      least = std::min(least.value_or(*most), *most - std::min(*most, *now - std::min(*now, cache)));
    }
  return least;
}

void cgroup_kill(const std::string& cgroup) {
  if (!cgroup.empty()) write_control(cgroup + "/cgroup.kill", "1");
}

bool cgroup_populated(const std::string& cgroup) {
  if (cgroup.empty()) return false;
  return read_small_file(cgroup + "/cgroup.events").value_or("").find("populated 1") != std::string::npos;
}

void cgroup_remove(const Cgroups::Place& place) {
  if (!place.v2.empty()) {
    ::rmdir((place.v2 + "/task").c_str());
    // An agent of an earlier version also made a child for the shim.
    if (::rmdir(place.v2.c_str()) != 0 && ::rmdir((place.v2 + "/shim").c_str()) == 0) ::rmdir(place.v2.c_str());
  }
  if (!place.memory.empty()) ::rmdir(place.memory.c_str());
}

}  // namespace dtrain::proc
