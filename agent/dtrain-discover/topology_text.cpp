#include "agent/dtrain-discover/topology_text.h"

#include <algorithm>

#include "agent/host/machine.h"

namespace dtrain::discover {
namespace {

struct NumaLine {
  std::uint32_t number = 0;
  std::string what;  // memory and cores
  std::vector<const FoundGpu*> gpus;
};

std::string count_of(std::uint64_t n, const std::string& noun) { return std::to_string(n) + " " + noun + (n == 1 ? "" : "s"); }

std::string gibibytes(std::uint64_t bytes) {
  const std::uint64_t tenths = (bytes * 10 + (1ull << 29)) >> 30;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

// "16 cores, 32 threads"; "16 cores" if each has one thread; "no cores" for a node with memory only.
std::string cores_in(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  const auto count = [&](hwloc_obj_type_t type) {
    return static_cast<std::uint64_t>(std::max(0, hwloc_get_nbobjs_inside_cpuset_by_type(topology, cpus, type)));
  };
  const std::uint64_t threads = count(HWLOC_OBJ_PU), cores = count(HWLOC_OBJ_CORE);
  if (threads == 0) return "no cores";
  if (cores == 0) return count_of(threads, "thread");
  return count_of(cores, "core") + (threads == cores ? "" : ", " + count_of(threads, "thread"));
}

std::string gpu_line(const FoundGpu& gpu) {
  std::string line = "gpu " + std::to_string(gpu.facts.index) + "  " + gpu.facts.pci;
  if (!gpu.facts.model.empty()) line += "  " + gpu.facts.model;
  if (gpu.facts.memory_bytes != 0) line += ", " + gibibytes(gpu.facts.memory_bytes);
  if (gpu.facts.group >= 0) line += ", link group " + std::to_string(gpu.facts.group);
  for (std::size_t i = 0; i < gpu.facts.nics.size(); ++i) line += (i == 0 ? ", near " : " ") + gpu.facts.nics[i];
  if (gpu.excluded) line += " (excluded)";
  if (!gpu.facts.healthy) line += " (unhealthy: " + gpu.facts.reason + ")";
  return line;
}

class Text {
 public:
  // `depth`: of the indentation.
  void line(int depth, const std::string& text) {
    const std::string whole = std::string(static_cast<std::size_t>(depth) * 2, ' ') + text + "\n";
    cut_ = cut_ || out_.size() + whole.size() + kCut.size() > host::kTopologyTextBytes;
    if (!cut_) out_ += whole;
  }
  std::string take() { return cut_ ? out_ + std::string(kCut) : out_; }

 private:
  static constexpr std::string_view kCut = "... (longer than 2 KiB: see lstopo)\n";
  std::string out_;
  bool cut_ = false;
};

void write_nodes(Text& text, int depth, const std::vector<NumaLine>& nodes) {
  for (std::size_t i = 0; i < nodes.size();) {
    std::size_t end = i + 1;
    while (end < nodes.size() && nodes[i].gpus.empty() && nodes[end].gpus.empty() && nodes[end].what == nodes[i].what &&
           nodes[end].number == nodes[end - 1].number + 1)
      ++end;
    const std::string numbers = std::to_string(nodes[i].number) + (end - i == 1 ? "" : "-" + std::to_string(nodes[end - 1].number));
    text.line(depth, "numa " + numbers + ": " + nodes[i].what + (end - i == 1 ? "" : " each"));
    for (const FoundGpu* gpu : nodes[i].gpus) text.line(depth + 1, gpu_line(*gpu));
    i = end;
  }
}

}  // namespace

std::string topology_text(hwloc_topology_t topology, std::uint64_t memory_bytes, const std::vector<FoundGpu>& gpus) {
  const int packages = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
  std::vector<std::vector<NumaLine>> of_package(static_cast<std::size_t>(std::max(0, packages)));
  std::vector<NumaLine> elsewhere;  // memory without CPUs, or of several packages
  std::vector<const FoundGpu*> placed;
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
    NumaLine line{node->os_index, gibibytes(node->attr->numanode.local_memory) + ", " + cores_in(topology, node->cpuset), {}};
    for (const FoundGpu& gpu : gpus)
      if (gpu.facts.numa == static_cast<std::int32_t>(node->os_index)) line.gpus.push_back(&gpu);
    placed.insert(placed.end(), line.gpus.begin(), line.gpus.end());
    std::vector<NumaLine>* home = &elsewhere;
    for (int i = 0; i < packages; ++i) {
      const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, static_cast<unsigned>(i));
      if (!hwloc_bitmap_iszero(node->cpuset) && hwloc_bitmap_isincluded(node->cpuset, package->cpuset))
        home = &of_package[static_cast<std::size_t>(i)];
    }
    home->push_back(std::move(line));
  }

  Text text;
  text.line(0, "machine: " + cores_in(topology, hwloc_get_root_obj(topology)->cpuset) + ", " + gibibytes(memory_bytes) + ", " +
                   (gpus.empty() ? "no GPUs" : count_of(gpus.size(), "GPU")));
  for (const FoundGpu& gpu : gpus)
    if (std::find(placed.begin(), placed.end(), &gpu) == placed.end()) text.line(1, gpu_line(gpu));
  write_nodes(text, 1, elsewhere);
  for (int i = 0; i < packages; ++i) {
    const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, static_cast<unsigned>(i));
    const std::vector<NumaLine>& nodes = of_package[static_cast<std::size_t>(i)];
    // A node of which nothing may be used, neither cores nor memory, is no part of what is offered.
    if (nodes.empty() && hwloc_bitmap_iszero(package->cpuset)) continue;
    text.line(1, "package " + std::to_string(i) + ": " + cores_in(topology, package->cpuset));
    write_nodes(text, 2, nodes);
  }
  return text.take();
}

}  // namespace dtrain::discover
