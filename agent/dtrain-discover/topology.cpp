#include "agent/dtrain-discover/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <string_view>

#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"
#include "agent/host/machine.h"

namespace dtrain::discover {
namespace {

std::string own_version() { return std::to_string(hwloc_get_api_version() >> 16); }

Result<std::string> read_topology_file(const std::string& path) {
  const auto failed = [&](ErrorCode code, const std::string& cause, const std::string& next) {
    return fail(code, "could not read topology " + path + ": " + cause, next);
  };
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe without a writer would wait for ever
  if (!fd) {
    const int cause = errno;
    return failed(cause == ENOENT ? ErrorCode::not_found : ErrorCode::io, ::strerror(cause),
                  "give a file that lstopo --of xml has written");
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return failed(ErrorCode::invalid, "it is not a regular file", "give a file that lstopo --of xml has written");
  if (static_cast<std::uint64_t>(info.st_size) > host::kTopologyFileBytes)
    return failed(ErrorCode::invalid, "it is larger than " + std::to_string(host::kTopologyFileBytes >> 20) + " MiB",
                  "give a file that lstopo --of xml has written");
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  if (!read_into(fd.get(), text)) return failed(ErrorCode::io, ::strerror(errno), "check the disk that it lies on");
  return text;
}

// The major number in <topology version="3.0">; 1 if it is missing, as in files of hwloc 1.
unsigned format_of(std::string_view text) {
  const auto element = text.find("<topology");
  const auto end = text.find('>', element);
  if (element == std::string_view::npos || end == std::string_view::npos) return 0;
  const std::string_view tag = text.substr(element, end - element);
  const auto version = tag.find("version=\"");
  if (version == std::string_view::npos) return 1;
  return static_cast<unsigned>(::atoi(std::string(tag.substr(version + 9, 4)).c_str()));
}

Status use_file(hwloc_topology_t topology, const std::string& path) {
  const auto text = read_topology_file(path);
  if (!text) return fail(text.error());
  const auto wrong = [&](const std::string& cause, const std::string& next) {
    return fail(ErrorCode::invalid, "could not read topology " + path + ": " + cause, next);
  };
  const unsigned format = format_of(*text), own = hwloc_get_api_version() >> 16;
  if (format == 0) return wrong("it is not hwloc XML", "make one with lstopo --of xml " + path);
  if (format > own)
    return wrong(
        "it has format " + std::to_string(format) + ", and hwloc " + own_version() + " here reads up to format " + std::to_string(own),
        "write it again where it comes from: lstopo --of xml --export-xml-flags v" + std::to_string(own) + " FILE.xml");
  if (hwloc_topology_set_xmlbuffer(topology, text->c_str(), static_cast<int>(text->size() + 1)) != 0)
    return wrong("it is not hwloc XML", "make one with lstopo --of xml " + path);
  return {};
}

void keep_devices(hwloc_topology_t topology) {
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // Network devices; in a file: what cuda, nvml and rsmi reported about a GPU when it was written.
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
}

}  // namespace

Result<Topology> load_topology(const Source& source) {
  if (!source.root.empty()) {
    ::setenv("HWLOC_FSROOT", source.root.c_str(), 1);
    ::setenv("HWLOC_THISSYSTEM", "0", 1);
  }
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0)
    return fail(ErrorCode::internal, std::string("could not start hwloc: ") + ::strerror(errno), "install libhwloc15 again");
  Topology topology(raw, &hwloc_topology_destroy);
  keep_devices(raw);
  if (!source.file.empty())
    if (auto used = use_file(raw, source.file); !used) return fail(used.error());
  errno = 0;
  if (hwloc_topology_load(raw) != 0) {
    if (!source.file.empty())
      return fail(ErrorCode::invalid, "could not read topology " + source.file + ": hwloc " + own_version() + " refuses it",
                  "make one with lstopo --of xml; hwloc says more with HWLOC_XML_VERBOSE=1 lstopo -i " + source.file);
    return fail(ErrorCode::io, std::string("could not discover the machine: hwloc: ") + ::strerror(errno), "mount /proc and /sys");
  }
  return topology;
}

std::uint64_t usable_cpus(hwloc_topology_t topology) {
  return static_cast<std::uint64_t>(std::max(0, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU)));
}

std::vector<task::HostCpu> list_cpus(hwloc_topology_t topology) {
  std::vector<task::HostCpu> cpus;
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, pu)) != nullptr;) {
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
    task::HostCpu cpu;
    cpu.index = pu->os_index;
    // The kernel numbers cores anew in each package. If no cores are known, each CPU counts as one.
    cpu.core = core != nullptr ? core->logical_index : pu->logical_index;
    if (pu->nodeset != nullptr) cpu.numa = hwloc_bitmap_first(pu->nodeset);
    cpus.push_back(cpu);
  }
  std::ranges::sort(cpus, {}, &task::HostCpu::index);
  return cpus;
}

std::uint64_t local_memory(hwloc_topology_t topology) {
  std::uint64_t bytes = 0;
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    bytes += node->attr->numanode.local_memory;
  return bytes;
}

}  // namespace dtrain::discover
