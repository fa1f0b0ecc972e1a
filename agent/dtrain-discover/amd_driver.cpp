#include "agent/dtrain-discover/amd_driver.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <utility>

#include "agent/dtrain-discover/drivers.h"
#include "agent/dtrain-discover/small_file.h"
#include "agent/host/machine.h"

namespace dtrain::discover {
namespace {

struct KfdNode {
  std::string name;
  std::uint64_t unique_id = 0, memory_bytes = 0;
  std::int32_t ordinal = -1;
  std::vector<host::PciAddress> linked;
};

// include/uapi/linux/kfd_sysfs.h: memory of a GPU, visible to the CPU or not; a link between GPUs.
constexpr std::uint64_t kHeapPublic = 1, kHeapPrivate = 2, kXgmi = 11;

std::uint64_t number_in(const std::map<std::string, std::string>& keys, const char* key) {
  const auto found = keys.find(key);
  return found == keys.end() ? 0 : to_number(found->second).value_or(0);
}

std::uint64_t memory_of(const std::string& banks) {
  std::uint64_t bytes = 0;
  for (const std::string& bank : list_directory(banks).value_or(std::vector<std::string>())) {
    const auto keys = read_keys(banks + "/" + bank + "/properties", ' ');
    const std::uint64_t heap = number_in(keys, "heap_type");
    if (heap == kHeapPublic || heap == kHeapPrivate) bytes += number_in(keys, "size_in_bytes");
  }
  return bytes;
}

// As ROCm counts GPUs: by the numbers of their nodes.
std::vector<std::string> in_order(std::vector<std::string> names) {
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::pair(to_number(a).value_or(0), a) < std::pair(to_number(b).value_or(0), b);
  });
  return names;
}

// A GPU that is divided into partitions has several nodes and is still one device.
std::map<host::PciAddress, KfdNode> read_kfd(const std::string& directory, const std::vector<std::string>& names) {
  std::map<host::PciAddress, KfdNode> nodes;
  std::map<std::uint64_t, host::PciAddress> addresses;  // by number of the node
  std::vector<std::pair<host::PciAddress, std::uint64_t>> links;
  std::int32_t ordinal = 0;
  for (const std::string& name : in_order(names)) {
    const std::string path = directory + "/" + name;
    const auto keys = read_keys(path + "/properties", ' ');
    if (number_in(keys, "simd_count") == 0) continue;               // a CPU
    const std::uint64_t location = number_in(keys, "location_id");  // bus, device, function as PCI packs them
    const host::PciAddress address{static_cast<std::uint32_t>(number_in(keys, "domain")), static_cast<std::uint8_t>(location >> 8),
                                   static_cast<std::uint8_t>((location >> 3) & 31), static_cast<std::uint8_t>(location & 7)};
    KfdNode& node = nodes[address];
    if (node.ordinal < 0) node.ordinal = ordinal;
    ++ordinal;
    if (node.name.empty()) node.name = clean_text(read_small_file(path + "/name").value_or(""), host::kDeviceTextBytes);
    if (node.unique_id == 0) node.unique_id = number_in(keys, "unique_id");
    node.memory_bytes += memory_of(path + "/mem_banks");
    if (const auto number = to_number(name)) addresses[*number] = address;
    for (const std::string& link : list_directory(path + "/io_links").value_or(std::vector<std::string>())) {
      const auto properties = read_keys(path + "/io_links/" + link + "/properties", ' ');
      if (number_in(properties, "type") == kXgmi) links.emplace_back(address, number_in(properties, "node_to"));
    }
  }
  for (const auto& [from, to] : links)
    if (const auto other = addresses.find(to); other != addresses.end()) nodes[from].linked.push_back(other->second);
  return nodes;
}

std::uint64_t read_hex(const std::string& path) {
  const std::string text = read_small_file(path).value_or("");
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

void fill(const std::string& device, const KfdNode& node, node::Gpu& gpu) {
  const std::string product = clean_text(read_small_file(device + "/product_name").value_or(""), host::kDeviceTextBytes);
  if (!product.empty()) gpu.model = product;
  else if (!node.name.empty()) gpu.model = node.name;
  const std::uint64_t own_id = read_hex(device + "/unique_id");
  if (const std::uint64_t id = own_id != 0 ? own_id : node.unique_id; id != 0) {
    char text[32];
    std::snprintf(text, sizeof text, "GPU-%016llx", static_cast<unsigned long long>(id));
    gpu.uuid = text;
  }
  gpu.ordinal = node.ordinal;
  gpu.memory_bytes = read_number(device + "/mem_info_vram_total").value_or(node.memory_bytes);
}

}  // namespace

void ask_amd_driver(const std::string& root, std::vector<FoundGpu>& gpus, std::vector<Error>& warnings) {
  const std::string directory = root + "/sys/class/kfd/kfd/topology/nodes";
  const auto names = list_directory(directory);
  if (!names) return mark_without_driver(gpus, kAmd, "AMD", "there is no " + directory, warnings);
  const auto nodes = read_kfd(directory, *names);
  for (FoundGpu& gpu : gpus)
    if (const auto node = nodes.find(gpu.address); gpu.vendor == kAmd && node != nodes.end()) {
      fill(root + "/sys/bus/pci/devices/" + gpu.facts.pci, node->second, gpu.facts);
      gpu.linked.insert(gpu.linked.end(), node->second.linked.begin(), node->second.linked.end());
    }
  mark_strangers(
      gpus, kAmd, "AMD", [&](const FoundGpu& gpu) { return nodes.contains(gpu.address); }, warnings);
}

}  // namespace dtrain::discover
