#include "common/node/host_facts.h"

#include <utility>

namespace dtrain::node {

CutFacts encode_within(HostFacts facts, std::size_t most) {
  CutFacts cut{wire::encode(facts), {}};
  // What is only shown goes first, what decides where tasks may run goes last.
  const std::pair<const char*, void (*)(HostFacts&)> parts[] = {
      {"topology", [](HostFacts& f) { f.topology.clear(); }},
      {"surroundings of GPUs",
       [](HostFacts& f) {
         for (Gpu& g : f.gpus) g.bridges.clear(), g.nics.clear();
       }},
      {"names of GPUs",
       [](HostFacts& f) {
         for (Gpu& g : f.gpus) g.model.clear(), g.uuid.clear();
       }},
      {"labels", [](HostFacts& f) { f.labels.clear(); }},
      {"GPUs", [](HostFacts& f) { f.gpus.clear(); }},
  };
  for (const auto& [name, clear] : parts) {
    if (cut.value.size() <= most) break;
    clear(facts);
    std::string shorter = wire::encode(facts);
    if (shorter.size() == cut.value.size()) continue;  // it was empty
    cut.value = std::move(shorter);
    cut.left_out += (cut.left_out.empty() ? "" : ", ") + std::string(name);
  }
  return cut;
}

}  // namespace dtrain::node
