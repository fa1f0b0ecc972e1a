// What a node tells the others about its machine: the values of the facts `resources` and `free`.
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
  std::string reason;                // why it is not healthy; "": it is
  std::int32_t group = -1;           // of GPUs that NVLink or XGMI joins, be it through others; -1: it is joined with none
  std::int32_t minor = -1;           // NVIDIA: N of /dev/nvidiaN; AMD: N of /dev/dri/renderDN; -1: not known
  std::int32_t ordinal = -1;         // among its maker's GPUs here, in the order of CUDA_DEVICE_ORDER=PCI_BUS_ID or of ROCm; -1: not known
  std::vector<std::string> bridges;  // PCI addresses of those above it, the one at the root first
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
  std::uint64_t cpu_millis = 0, memory_bytes = 0;  // after reserve
  std::vector<Gpu> gpus;
  std::map<std::string, std::string> labels;
  std::string topology;  // NodeFacts::topology
  std::uint32_t packages = 0, numa_nodes = 0;
  std::string unfit;  // NodeFacts::unfit
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
  }
};

// A fact that is too long would be refused by every peer, and with it all that this node says.
struct CutFacts {
  std::string value;     // encoded HostFacts
  std::string left_out;  // for people; "": nothing
};
// Leaves out what it must so that at most `most` bytes are left: first the topology.
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
  std::uint64_t hash = 0;  // over (job, task, generation, attempt) of what runs, in order
  template <class V>
  void fields(V& v) {
    v("hash", hash);
  }
};

struct CopyMark {            // of a copy of the ledger
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
  std::uint64_t history = 0;                    // of its log; 0: it has none
  std::uint64_t last_index = 0, last_term = 0;  // how far that reaches; only while it has no leader, else 0
  std::uint32_t knows = cluster::kFirstVersion;  // the newest version of the ledger that its program knows
  std::uint32_t version = 0;                     // that its copy has; 0: it has none
  bool behind = false;                           // its program cannot read on in its copy: it applies nothing any more
  CopyMark mark{};                               // the newest
  bool wants_state = false;                      // its copy differs from the others: the coordinator's is to take its place
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
