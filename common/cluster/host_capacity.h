// What one host has, and what of it was taken before anything was placed. Plain data, handed in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/ids.h"

namespace dtrain::cluster {

// GPUs of one host that are given out; further ones are left alone.
inline constexpr std::size_t kGpusPerHost = 64;

struct HostCapacity {
  NodeId id;
  std::string name;
  std::string task_address;  // hosts that share one share its ports
  std::uint64_t cpu_millis = 0, cpu_used = 0;
  std::uint64_t memory_bytes = 0, memory_used = 0;
  struct Gpu {
    std::uint32_t index = 0;
    std::string model;
    bool free = true;
    std::int32_t numa = -1;  // -1: not known; all such are taken to be near each other
    std::int32_t group = -1;  // of GPUs that NVLink or XGMI joins; -1: none
  };
  std::vector<Gpu> gpus;  // healthy ones
  std::map<std::string, std::string> labels;
  std::set<std::uint16_t> ports_in_use;  // taken or resting
  std::uint32_t tasks = 0;               // running here: spread and pack look at it
  bool schedulable = true;               // false (cordoned, or unfit): what runs stays, nothing new comes
  std::string unfit;                     // not "": likewise, since its health check or an epilog says this
  // It has no copy of the log, and as many hosts as may have one have tasks: nothing comes until one of them has none any more.
  bool no_copy = false;
};

struct PortRange {
  std::uint16_t first = 20000, last = 29999;
};

}  // namespace dtrain::cluster
