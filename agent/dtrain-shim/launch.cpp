#include "agent/dtrain-shim/launch.h"

#include <sys/mman.h>
#include <sys/stat.h>

namespace dtrain::shim {

namespace {

constexpr size_t kUsualBytes = 16 << 10;
constexpr size_t kNumbers = 32;  // room for two numbers

// Memory that is kept for good, requested only at start. Most launch files fit into memory beside the shim's other
// data: a separate mapping would need page tables of its own.
char room[kUsualBytes] __attribute__((aligned(alignof(void*))));
size_t used = 0;
bool mapped = false;

void* reserve(size_t bytes) {
  const size_t wanted = (bytes + alignof(void*) - 1) / alignof(void*) * alignof(void*);
  if (wanted <= kUsualBytes - used) {
    used += wanted;
    return room + used - wanted;
  }
  mapped = true;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

char* read_whole(const char* name, size_t& size) {
  const int fd = open_file(name, O_RDONLY);
  if (fd < 0) return nullptr;
  struct stat info {};
  char* memory = nullptr;
  if (fstat(fd, &info) == 0 && info.st_size > 0 && static_cast<size_t>(info.st_size) <= kLaunchBytes)
    memory = static_cast<char*>(reserve(static_cast<size_t>(info.st_size) + 1));
  size = 0;
  while (memory != nullptr && size < static_cast<size_t>(info.st_size)) {
    const ssize_t n = read(fd, memory + size, static_cast<size_t>(info.st_size) - size);
    if (n <= 0) break;
    size += static_cast<size_t>(n);
  }
  close(fd);
  return memory;
}

// Points list[i] at the i-th of `count` strings from `offset` on. False: they do not fit into the file.
bool fill_list(char* base, size_t size, uint32_t offset, uint32_t count, char** list) {
  size_t at = offset;
  for (uint32_t i = 0; i < count; ++i) {
    if (at >= size) return false;
    const void* end = memchr(base + at, '\0', size - at);
    if (end == nullptr) return false;
    list[i] = base + at;
    at = static_cast<size_t>(static_cast<const char*>(end) - base) + 1;
  }
  return true;
}

bool string_at(char* base, size_t size, uint32_t offset, const char*& out) {
  if (offset >= size || memchr(base + offset, '\0', size - offset) == nullptr) return false;
  out = base + offset;
  return true;
}

}  // namespace

bool Launch::is_short() { return !mapped; }

bool Launch::load() {
  // Clears an earlier assignment's data: lists end at null pointers.
  memset(room, 0, used);
  used = 0;
  size_t size = 0;
  char* base = read_whole(kLaunchFile, size);
  if (base == nullptr) return false;
  errno = EBADMSG;
  if (!read_launch_header(base, size, header)) return false;
  const LaunchHeader& h = header;
  if (h.argv_count == 0 || h.argv_count > size || h.env_count > size || h.groups_offset % sizeof(uint32_t) != 0) return false;
  constexpr size_t kOwnVariables = 3;  // NOTIFY_SOCKET, DTRAIN_ATTEMPT, the error file's
  argv = static_cast<char**>(reserve((h.argv_count + 1) * sizeof(char*)));
  env = static_cast<char**>(reserve((h.env_count + kOwnVariables + h.rank_env_count + 1) * sizeof(char*)));
  const uint32_t of_ranks = h.rank_count * h.rank_env_count;
  rank_env_ = of_ranks == 0 ? nullptr : static_cast<char**>(reserve(of_ranks * sizeof(char*)));
  if (argv == nullptr || env == nullptr || (of_ranks != 0 && rank_env_ == nullptr)) return false;
  if (!fill_list(base, size, h.rank_env_offset, of_ranks, rank_env_)) return false;
  groups = reinterpret_cast<const uint32_t*>(base + h.groups_offset);
  cpus = base + h.cpus_offset;
  if (!fill_list(base, size, h.argv_offset, h.argv_count, argv) || !fill_list(base, size, h.env_offset, h.env_count, env) ||
      !string_at(base, size, h.work_dir_offset, work_dir) || !string_at(base, size, h.notify_offset, notify) ||
      !string_at(base, size, h.cgroup_offset, cgroup) || !string_at(base, size, h.memory_offset, memory_cgroup))
    return false;
  error_file_ = nullptr;
  if (h.error_offset != 0) {
    const char* beginning = nullptr;
    if (!string_at(base, size, h.error_offset, beginning)) return false;
    error_size_ = strlen(beginning);
    error_file_ = static_cast<char*>(reserve(error_size_ + kNumbers));
    if (error_file_ == nullptr) return false;
    memcpy(error_file_, beginning, error_size_ + 1);
  }
  env_size_ = h.env_count;
  for (uint32_t i = 0; i < h.env_count; ++i)
    if (strncmp(env[i], "PATH=", 5) == 0) path = env[i] + 5;
  if (!has("DTRAIN_ATTEMPT=")) {
    attempt_slot_ = env_size_;
    append(attempt_.data());
  } else {
    attempt_slot_ = UINT32_MAX;
  }
  errno = 0;
  return true;
}

bool Launch::has(const char* name) const {
  for (uint32_t i = 0; i < header.env_count; ++i)
    if (strncmp(env[i], name, strlen(name)) == 0) return true;
  return false;
}

void Launch::append(char* assignment) {
  env[env_size_++] = assignment;
  env[env_size_] = nullptr;
}

void Launch::set_notify(char* assignment) {
  if (!has("NOTIFY_SOCKET=")) append(assignment);
}

// After all others, which are complete by then.
void Launch::set_rank(uint32_t rank) {
  uint32_t size = env_size_;
  for (uint32_t i = 0; i < header.rank_env_count; ++i) env[size++] = rank_env_[rank * header.rank_env_count + i];
  if (error_file_ != nullptr) {
    Text<kNumbers> numbers;
    numbers.add(number_).add(".").add(rank);
    memcpy(error_file_ + error_size_, numbers.c_str(), numbers.size() + 1);
    env[size++] = error_file_;
  }
  env[size] = nullptr;
}

void Launch::set_attempt(uint32_t attempt) {
  number_ = attempt;
  attempt_ = {};
  attempt_.add("DTRAIN_ATTEMPT=").add(attempt);
}

}  // namespace dtrain::shim
