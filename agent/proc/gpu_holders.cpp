#include "agent/proc/gpu_holders.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <memory>
#include <string_view>

#include "agent/proc/device_nodes.h"
#include "agent/proc/small_file.h"
#include "agent/proc/task_of_process.h"

namespace dtrain::proc {
namespace {

struct Target {
  std::string pci, name;  // of its node, without directories
  struct stat node {};
  bool held = false;  // by the process that is looked at
};

bool same(const struct stat& a, const struct stat& b) {
  if (S_ISCHR(a.st_mode) || S_ISCHR(b.st_mode)) return S_ISCHR(a.st_mode) && S_ISCHR(b.st_mode) && a.st_rdev == b.st_rdev;
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

std::vector<Target> find_targets(const std::vector<task::OwnGpu>& gpus, const std::string& root) {
  std::vector<Target> targets;
  for (const task::OwnGpu& gpu : gpus) {
    const std::string path = own_device_node(gpu);
    Target target{gpu.pci, path.substr(path.rfind('/') + 1), {}, false};
    if (::stat((root + path).c_str(), &target.node) == 0) targets.push_back(std::move(target));
  }
  return targets;
}

template <class Each>
bool for_entries(const std::string& directory, Each each) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(directory.c_str()), ::closedir);
  if (!entries) return false;
  while (const dirent* entry = ::readdir(entries.get()))
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') each(entry->d_name);
  return true;
}

bool mark_held(const std::string& descriptors, std::vector<Target>& targets) {
  bool any = false;
  for (Target& target : targets) target.held = false;
  for_entries(descriptors, [&](const char* number) {
    const std::string path = descriptors + "/" + number;
    std::array<char, 256> text;
    const ssize_t size = ::readlink(path.c_str(), text.data(), text.size());
    if (size <= 0) return;
    const std::string_view link(text.data(), static_cast<std::size_t>(size));
    for (Target& target : targets) {
      // By name first: to ask after any other file might wait for a server that is away.
      struct stat file {};
      if (!target.held && link.ends_with("/" + target.name) && ::stat(path.c_str(), &file) == 0 && same(file, target.node))
        any = target.held = true;
    }
  });
  return any;
}

// The number behind a name at the beginning of a line of /proc/PID/status.
std::optional<std::uint32_t> status_number(const std::string& status, std::string_view name) {
  const std::size_t at = status.find("\n" + std::string(name) + ":\t");
  if (at == std::string::npos) return std::nullopt;
  std::uint32_t value = 0;
  const char* text = status.data() + at + name.size() + 3;
  return std::from_chars(text, status.data() + status.size(), value).ec == std::errc() ? std::optional(value) : std::nullopt;
}

// proc(5): the 22nd field of stat is when it began, in clock ticks since the boot. The second, its name, may hold blanks and parentheses.
std::optional<Instant> began(const std::string& stat) {
  std::size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  std::uint64_t ticks = 0;
  if (at == std::string::npos) return std::nullopt;
  if (std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), ticks).ec != std::errc()) return std::nullopt;
  const auto per_second = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  return Instant(std::chrono::seconds(ticks / per_second) + Duration(ticks % per_second * (1'000'000'000 / per_second)));
}

std::optional<node::GpuHolder> describe(const std::string& directory) {
  const auto stat = read_small_file(directory + "/stat");
  const auto status = read_small_file(directory + "/status");
  if (!stat || !status) return std::nullopt;
  const std::size_t open = stat->find('('), close = stat->rfind(')');
  const auto uid = status_number(*status, "Uid");
  const auto since = began(*stat);
  if (!uid || !since || open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  node::GpuHolder holder;
  holder.uid = *uid;
  holder.began = *since;
  holder.program = stat->substr(open + 1, close - open - 1);
  for (char& c : holder.program)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return holder;
}

}  // namespace

Result<std::vector<node::GpuHolder>> find_gpu_holders(const std::vector<task::OwnGpu>& gpus, const HolderPlaces& places) {
  std::vector<node::GpuHolder> holders;
  std::vector<Target> targets = find_targets(gpus, places.root);
  if (targets.empty()) return holders;
  const bool listed = for_entries(places.proc, [&](const char* pid) {
    const std::string directory = places.proc + "/" + pid;
    if (!mark_held(directory + "/fd", targets)) return;
    auto holder = describe(directory);  // none: it has ended
    if (!holder) return;
    std::from_chars(pid, pid + std::char_traits<char>::length(pid), holder->pid);
    holder->in_task = runs_in_task(holder->pid, places.tasks_dir, places.proc);
    for (const Target& target : targets) {
      if (!target.held) continue;
      holder->pci = target.pci;
      holders.push_back(*holder);
    }
  });
  if (!listed) return fail(ErrorCode::io, "could not list the processes of this host: " + cause_of(errno), "mount " + places.proc);
  return holders;
}

}  // namespace dtrain::proc
