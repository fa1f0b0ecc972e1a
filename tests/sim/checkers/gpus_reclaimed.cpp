// A GPU that a process outside of all tasks still holds after its task's end is given to no other task, whichever life of the agent it is.
#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class GpusReclaimed final : public HostChecker {
 public:
  using HostChecker::HostChecker;
  std::string_view name() const override { return "gpus_reclaimed"; }

  void process_started(const SimShim& shim) override {
    for (const std::string& gpu : shim.spec.gpu_ids)
      if (const auto* leftover = host().runner().leftover(gpu); leftover != nullptr && leftover->of != shim.spec.id)
        return violation(shim.spec.id.text() + " got GPU " + gpu + ", which is still held after the end of " + leftover->of.text());
  }
};

}  // namespace

std::unique_ptr<Checker> gpus_reclaimed(WorldView& world, std::size_t host) { return std::make_unique<GpusReclaimed>(world, host); }

}  // namespace dtrain::sim
