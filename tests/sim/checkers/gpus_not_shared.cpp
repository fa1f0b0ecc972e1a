// A GPU belongs to one living task at a time, and the tasks placed on a host never ask for more GPUs than it has.
#include "tests/sim/checkers/checkers.h"
#include "tests/sim/job_factory.h"

namespace dtrain::sim {
namespace {

class GpusNotShared final : public HostChecker {
 public:
  using HostChecker::HostChecker;
  std::string_view name() const override { return "gpus_not_shared"; }

  void process_started(const SimShim& shim) override {
    std::uint64_t cpus = 0, memory = 0;
    for (const auto& [id, other] : host().runner().shims()) {
      if (!other.running) continue;
      cpus += other.spec.cpu_millis;
      memory += other.spec.memory_bytes;
      if (id == shim.spec.id) continue;
      for (const std::string& gpu : shim.spec.gpu_ids)
        for (const std::string& taken : other.spec.gpu_ids)
          if (gpu == taken) return violation(shim.spec.id.text() + " got GPU " + gpu + " of " + id.text());
    }
    if (cpus > kHostCpuMillis || memory > kHostMemoryBytes)
      violation("with " + shim.spec.id.text() + " the host is booked for " + std::to_string(cpus) + " milli-CPUs and " +
                std::to_string(memory) + " bytes");
  }
};

}  // namespace

std::unique_ptr<Checker> gpus_not_shared(WorldView& world, std::size_t host) { return std::make_unique<GpusNotShared>(world, host); }

}  // namespace dtrain::sim
