#include "agent/host/facts.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "common/base/limits.h"

namespace dtrain::host {
namespace {

constexpr std::uint64_t kReservedCpuMillis = 1000;
constexpr std::uint64_t kReservedMemory = 4ull << 30;
constexpr int kMostCpus = 1 << 16;

}  // namespace

Result<std::vector<std::uint32_t>> usable_cpus() {
  // The kernel refuses a set smaller than its own, whose size it does not reveal.
  for (int cpus = 1024; cpus <= kMostCpus; cpus *= 4) {
    const std::size_t size = CPU_ALLOC_SIZE(cpus);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(cpus), [](cpu_set_t* s) { CPU_FREE(s); });
    if (::sched_getaffinity(0, size, set.get()) == 0) {
      std::vector<std::uint32_t> usable;
      for (int cpu = 0; cpu < cpus; ++cpu)
        if (CPU_ISSET_S(static_cast<std::size_t>(cpu), size, set.get())) usable.push_back(static_cast<std::uint32_t>(cpu));
      return usable;
    }
    if (errno != EINVAL) break;
  }
  return fail(ErrorCode::io, std::string("could not count the CPUs: ") + ::strerror(errno));
}

std::vector<task::HostCpu> describe_cpus(const std::vector<std::uint32_t>& usable, const std::vector<task::HostCpu>& known) {
  std::vector<task::HostCpu> cpus;
  for (const std::uint32_t index : usable) {
    const auto described = std::ranges::find(known, index, &task::HostCpu::index);
    if (described != known.end()) cpus.push_back(*described);
    else if (known.empty()) cpus.push_back({index, index, -1});
  }
  return cpus;
}

namespace {

Result<std::uint64_t> total_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::uint64_t kilobytes = 0;
  while (file >> key >> kilobytes) {
    if (key == "MemTotal:") return kilobytes << 10;
    file.ignore(256, '\n');
  }
  return fail(ErrorCode::io, "could not read the size of the memory from /proc/meminfo", "mount /proc");
}

}  // namespace

Result<Capacity> total_capacity() {
  const auto cpus = usable_cpus();
  if (!cpus) return fail(cpus.error());
  const auto memory = total_memory();
  if (!memory) return fail(memory.error());
  return Capacity{cpus->size() * 1000, *memory};
}

Capacity after_reserve(const Capacity& total, const ReserveOptions& reserve) {
  const std::uint64_t cpu = reserve.cpu_millis.value_or(std::min(kReservedCpuMillis, total.cpu_millis / 2));
  const std::uint64_t memory = reserve.memory_bytes.value_or(std::min(kReservedMemory, total.memory_bytes / 4));
  return Capacity{total.cpu_millis - std::min(cpu, total.cpu_millis), total.memory_bytes - std::min(memory, total.memory_bytes)};
}

Result<std::string> boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (file >> id) return id;
  return fail(ErrorCode::io, "could not read the boot id from /proc/sys/kernel/random/boot_id", "mount /proc");
}

bool is_node_name(const std::string& name) {
  if (name.empty() || name.size() > limits::kNameBytes || name.front() == '-' || name.back() == '-') return false;
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
}

std::string to_node_name(const std::string& host_name) {
  std::string name = host_name.substr(0, host_name.find('.'));
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9')) c = '-';
  }
  name = name.substr(0, limits::kNameBytes);
  name.erase(0, name.find_first_not_of('-'));
  name.erase(name.find_last_not_of('-') + 1);
  return name.empty() ? "node" : name;
}

std::string default_node_name() {
  char host_name[256] = "";
  if (::gethostname(host_name, sizeof host_name - 1) != 0) return "node";
  return to_node_name(host_name);
}

std::vector<node::NodeFacts::Gpu> pretended_gpus(std::uint32_t count) {
  std::vector<node::NodeFacts::Gpu> gpus;
  for (std::uint32_t i = 0; i < count; ++i) {
    node::NodeFacts::Gpu gpu;
    gpu.index = i;
    gpu.pci = "pretended-" + std::to_string(i);
    gpu.vendor = gpu.model = "pretended";
    gpu.uuid = gpu.pci;
    gpu.pretended = true;
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

Result<std::uint64_t> random_seed() {
  std::uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed)
    return fail(ErrorCode::io, std::string("could not get random bytes: ") + ::strerror(errno));
  return seed;
}

Result<std::string> random_id() {
  static constexpr char kHex[] = "0123456789abcdef";
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    return fail(ErrorCode::io, std::string("could not get random bytes: ") + ::strerror(errno));
  std::string id;
  for (const unsigned char byte : bytes) {
    id += kHex[byte >> 4];
    id += kHex[byte & 15];
  }
  return id;
}

}  // namespace dtrain::host
