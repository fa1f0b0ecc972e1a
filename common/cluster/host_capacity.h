// What one host has, and how much of it was in use before placement. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/ids.h"

namespace dtrain::cluster {

// GPUs of one host that are given out; further ones are not used.
inline constexpr std::size_t kGpusPerHost = 64;

struct HostCapacity {
  NodeId id;
  std::string name;
  std::string task_address;  // hosts with the same address share its ports
  std::uint64_t cpu_millis = 0, cpu_used = 0;
  std::uint64_t memory_bytes = 0, memory_used = 0;
  struct Gpu {
    std::uint32_t index = 0;
    std::string model;
    bool free = true;
    std::int32_t numa = -1;   // -1: not known, and all such count as near each other
    std::int32_t group = -1;  // number of the set that NVLink or XGMI joins; -1: none
  };
  std::vector<Gpu> gpus;  // healthy ones
  std::map<std::string, std::string> labels;
  std::set<std::uint16_t> ports_in_use;  // taken or resting
  std::uint32_t tasks = 0;               // tasks that run here, for spread and pack
  bool schedulable = true;               // false (cordoned or unfit): its tasks stay, and it gets no new ones
  std::string unfit;                     // not "": why the host is unfit, by its health check or an epilog; it gets no new tasks
  bool runs_images = false;              // tasks whose role names an image may run here
  // The host has no copy of the log, and as many hosts with tasks as may have a copy have one: it gets no tasks until
  // one of them has none any more.
  bool no_copy = false;
};

struct PortRange {
  std::uint16_t first = 20000, last = 29999;
};

}  // namespace dtrain::cluster
