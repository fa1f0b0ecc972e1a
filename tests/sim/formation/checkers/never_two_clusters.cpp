// Of all the clusters that founders begin, the log of one only ever works, whatever is lost, cut off or
// restarted.

#include "tests/sim/formation/checkers/checkers.h"

namespace dtrain::sim::formation {
namespace {

class NeverTwoClusters final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "never_two_clusters"; }

  void works(const core::Founding& founding) override {
    if (works_.none()) works_ = founding.cluster;
    if (works_ == founding.cluster) return;
    violation("clusters " + works_.text().substr(0, 8) + " and " + founding.cluster.text().substr(0, 8) +
              " both have a majority of their voters");
  }

 private:
  MemberId works_;
};

}  // namespace

std::unique_ptr<Checker> never_two_clusters(WorldView& world) { return std::make_unique<NeverTwoClusters>(world); }

}  // namespace dtrain::sim::formation
