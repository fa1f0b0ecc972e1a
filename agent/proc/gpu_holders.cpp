#include "agent/proc/gpu_holders.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "agent/base/small_file.h"
#include "agent/proc/device_nodes.h"
#include "agent/proc/task_of_process.h"

namespace dtrain::proc {
namespace {

bool same(const struct stat& a, const struct stat& b) {
  if (S_ISCHR(a.st_mode) || S_ISCHR(b.st_mode)) return S_ISCHR(a.st_mode) && S_ISCHR(b.st_mode) && a.st_rdev == b.st_rdev;
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// The number after a name at the beginning of a line of /proc/PID/status.
std::optional<std::uint32_t> status_number(const std::string& status, std::string_view name) {
  const std::size_t at = status.find("\n" + std::string(name) + ":\t");
  if (at == std::string::npos) return std::nullopt;
  std::uint32_t value = 0;
  const char* text = status.data() + at + name.size() + 3;
  return std::from_chars(text, status.data() + status.size(), value).ec == std::errc() ? std::optional(value) : std::nullopt;
}

// proc(5): the 22nd field of stat is the start time, in clock ticks since the boot. The second field, the name, may
// contain blanks and parentheses.
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

const dirent* next_number(DIR* directory) {
  const dirent* entry = ::readdir(directory);
  while (entry != nullptr && (entry->d_name[0] < '0' || entry->d_name[0] > '9')) entry = ::readdir(directory);
  return entry;
}

}  // namespace

struct GpuHolderSearch::Target {
  std::string pci, name;  // name: of its node, without directories
  struct stat node {};
  bool held = false;  // by the process under consideration
};

GpuHolderSearch::GpuHolderSearch(const std::vector<task::OwnGpu>& gpus, HolderPlaces places)
    : places_(std::move(places)), processes_(nullptr, ::closedir), descriptors_(nullptr, ::closedir) {
  for (const task::OwnGpu& gpu : gpus) {
    const std::string path = own_device_node(gpu);
    Target target{gpu.pci, path.substr(path.rfind('/') + 1), {}, false};
    if (::stat((places_.root + path).c_str(), &target.node) == 0) targets_.push_back(std::move(target));
  }
}

GpuHolderSearch::~GpuHolderSearch() = default;

Result<bool> GpuHolderSearch::look(std::size_t most) {
  if (targets_.empty()) return true;
  if (!processes_) processes_.reset(::opendir(places_.proc.c_str()));
  if (!processes_) return fail(ErrorCode::io, "could not list the processes of this host: " + cause_of(errno), "mount " + places_.proc);
  for (; most > 0; --most) {
    if (descriptors_) {
      const dirent* descriptor = next_number(descriptors_.get());
      if (descriptor != nullptr) look_at(descriptor->d_name);
      else process_done();
      continue;
    }
    const dirent* process = next_number(processes_.get());
    if (process == nullptr) return true;
    pid_ = process->d_name;
    descriptors_.reset(::opendir((places_.proc + "/" + pid_ + "/fd").c_str()));  // not permitted: no descriptors
  }
  return false;
}

void GpuHolderSearch::look_at(const char* descriptor) {
  std::array<char, 256> text;
  const ssize_t size = ::readlinkat(::dirfd(descriptors_.get()), descriptor, text.data(), text.size());
  if (size <= 0) return;
  const std::string_view link(text.data(), static_cast<std::size_t>(size));
  for (Target& target : targets_) {
    // By name first: asking about any other file might wait for a server that is away.
    struct stat file {};
    if (!target.held && link.ends_with("/" + target.name) && ::fstatat(::dirfd(descriptors_.get()), descriptor, &file, 0) == 0 &&
        same(file, target.node))
      target.held = true;
  }
}

void GpuHolderSearch::process_done() {
  descriptors_.reset();
  std::optional<node::GpuHolder> holder;
  for (Target& target : targets_) {
    if (!std::exchange(target.held, false)) continue;
    if (!holder) {
      holder = describe(places_.proc + "/" + pid_);
      if (!holder) continue;  // the process has ended
      std::from_chars(pid_.data(), pid_.data() + pid_.size(), holder->pid);
      holder->in_task = runs_in_task(holder->pid, places_.tasks_dir, places_.proc);
    }
    holder->pci = target.pci;
    holders_.push_back(*holder);
  }
}

Result<std::vector<node::GpuHolder>> find_gpu_holders(const std::vector<task::OwnGpu>& gpus, const HolderPlaces& places) {
  GpuHolderSearch search(gpus, places);
  Result<bool> done = false;
  while (done && !*done) done = search.look(kHolderLooks);
  if (!done) return fail(done.error());
  return search.take();
}

}  // namespace dtrain::proc
