// A CPU that a task has for itself belongs to one living task of its host at a time, over all lives of the agent; a
// task with CPUs of its own has as many as it asked for, all of its host.
#include <algorithm>

#include "tests/sim/checkers/checkers.h"
#include "tests/sim/job_factory.h"

namespace dtrain::sim {
namespace {

class CpusNotShared final : public HostChecker {
 public:
  using HostChecker::HostChecker;
  std::string_view name() const override { return "cpus_not_shared"; }

  void process_started(const SimShim& shim) override {
    const std::vector<std::uint32_t>& own = shim.spec.cpus;
    if (own.empty()) return;
    const auto beyond = [](std::uint32_t cpu) { return cpu >= kHostCpus; };
    if (own.size() * 1000 != shim.spec.cpu_millis || std::ranges::any_of(own, beyond))
      return violation(shim.spec.id.text() + " asked for " + std::to_string(shim.spec.cpu_millis) + " milli-CPUs and was given " +
                       std::to_string(own.size()) + " CPUs, up to number " + std::to_string(std::ranges::max(own)));
    for (const auto& [id, other] : host().runner().shims()) {
      if (!other.running || id == shim.spec.id) continue;
      for (const std::uint32_t cpu : own)
        if (std::ranges::find(other.spec.cpus, cpu) != other.spec.cpus.end())
          return violation(shim.spec.id.text() + " got CPU " + std::to_string(cpu) + " of " + id.text());
    }
  }
};

}  // namespace

std::unique_ptr<Checker> cpus_not_shared(WorldView& world, std::size_t host) { return std::make_unique<CpusNotShared>(world, host); }

}  // namespace dtrain::sim
