// What a node tells the others about its machine: the values of its facts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/cluster/versions.h"
#include "common/wire/codec.h"

namespace dtrain::node {

struct Gpu {
  std::uint32_t index = 0;
  std::string pci, vendor, model, uuid;
  std::uint64_t memory_bytes = 0;
  std::int32_t numa = -1;
  bool healthy = true;
  bool pretended = false;
  std::string reason;  // why it is not healthy; "": it is healthy
  // number of the set of GPUs that NVLink or XGMI joins, directly or through others; -1: it is joined with none
  std::int32_t group = -1;
  std::int32_t minor = -1;           // NVIDIA: N of /dev/nvidiaN; AMD: N of /dev/dri/renderDN; -1: not known
  std::int32_t ordinal = -1;         // among its maker's GPUs here, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID or of ROCm; -1: not known
  std::vector<std::string> bridges;  // PCI addresses of the bridges above it, the root's first
  std::vector<std::string> nics;     // the nearest network devices: "mlx5_0", or "eth0" where there is no RDMA
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("pci", pci);
    v("vendor", vendor);
    v("model", model);
    v("uuid", uuid);
    v("memory_bytes", memory_bytes);
    v("numa", numa);
    v("healthy", healthy);
    v("pretended", pretended);
    v("reason", reason);
    v("group", group);
    v("minor", minor);
    v("ordinal", ordinal);
    v("bridges", bridges);
    v("nics", nics);
  }
};

struct HostFacts {  // fact `resources`
  std::string task_address, task_interface, version;
  std::uint64_t cpu_millis = 0, memory_bytes = 0;  // without resources.reserve
  std::vector<Gpu> gpus;
  std::map<std::string, std::string> labels;
  std::string topology;  // NodeFacts::topology
  std::uint32_t packages = 0, numa_nodes = 0;
  std::string unfit;   // NodeFacts::unfit
  std::string images;  // NodeFacts::images
  template <class V>
  void fields(V& v) {
    v("task_address", task_address);
    v("task_interface", task_interface);
    v("version", version);
    v("cpu_millis", cpu_millis);
    v("memory_bytes", memory_bytes);
    v("gpus", gpus);
    v("labels", labels);
    v("topology", topology);
    v("packages", packages);
    v("numa_nodes", numa_nodes);
    v("unfit", unfit);
    v("images", images);
  }
};

// The peers refuse everything that a node says if one of its facts is too long, so a long one is shortened.
struct CutFacts {
  std::string value;     // encoded HostFacts
  std::string left_out;  // what was left out, for people; "": nothing
};
// Encodes the facts in at most `most` bytes, leaving out what it must, the topology first.
CutFacts encode_within(HostFacts facts, std::size_t most);

struct FreeFacts {  // fact `free`
  std::uint64_t cpu_millis = 0, memory_bytes = 0;
  std::uint32_t gpus = 0;
  template <class V>
  void fields(V& v) {
    v("cpu_millis", cpu_millis);
    v("memory_bytes", memory_bytes);
    v("gpus", gpus);
  }
};

struct RunningFact {       // fact `running`
  std::uint64_t hash = 0;  // over (job, task, generation, attempt) of all that runs, in order
  template <class V>
  void fields(V& v) {
    v("hash", hash);
  }
};

struct CopyMark {           // of a copy of the ledger
  std::uint64_t index = 0;  // of an entry; 0: none yet
  std::uint64_t hash = 0;   // of the state after it
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("hash", hash);
  }
};

struct CouncilFact {            // fact `council`
  std::string role = "member";  // coordinator | voter | learner | member
  std::uint64_t epoch = 0;
  std::uint64_t history = 0;                     // number of its log's history; 0: it has no log
  std::uint64_t last_index = 0, last_term = 0;   // of its log, only while it has no leader; else 0
  std::uint32_t knows = cluster::kFirstVersion;  // newest version of the ledger that its program knows
  std::uint32_t version = 0;                     // version of the ledger that it has; 0: it has none
  bool behind = false;                           // its program is too old for its copy of the log, and applies nothing any more
  CopyMark mark{};                               // the newest
  bool wants_state = false;                      // its copy differs from the others: the coordinator's is to take its place
  bool coordinates() const { return role == "coordinator"; }
  template <class V>
  void fields(V& v) {
    v("role", role);
    v("epoch", epoch);
    v("history", history);
    v("last_index", last_index);
    v("last_term", last_term);
    v("knows", knows);
    v("version", version);
    v("behind", behind);
    v("mark", mark);
    v("wants_state", wants_state);
  }
};

}  // namespace dtrain::node
