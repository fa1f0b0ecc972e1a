// Fault quorum-lost: once in a run a majority of the voters goes away for long. An operator recovers the quorum on the survivor
// whose log reaches furthest, and starts the others again, as docs/dtrainctl.md says.
//
// What users were told is never lost here: the majority goes at an instant when some survivor has on its disk all that was
// acknowledged. What the log decided by itself since may be: in some runs the survivors are cut off before, so that it is. But
// they know where the tasks of the others' hosts are: a place that no log remembers nobody can wait for.
#pragma once

#include <optional>
#include <vector>

#include "common/base/rng.h"
#include "tests/sim/cluster_network.h"
#include "tests/sim/sim_client.h"

namespace dtrain::sim {

class ClusterWorld;

class QuorumLoss {
 public:
  // Faults end at `until`. Later too the operator goes on until all are back.
  QuorumLoss(ClusterWorld& world, Rng rng, Instant until);
  void begin();
  void answered(const SentRequest& sent, const wire::Message& message);

 private:
  enum class Loss : unsigned char { agent, reached, boot, disk };  // what goes: reached: nobody reaches the host either
  struct Victim {
    std::size_t host = 0;
    Loss loss{};
  };
  void strike();
  bool choose();
  void lie_in_wait(Instant until);
  bool about_to_begin() const;
  void watch_cut(Instant until);
  bool may_go() const;
  bool shows_more() const;
  void go();
  void operate();
  void ask();
  void bring_back();
  bool followed(std::size_t host) const;
  std::optional<std::size_t> furthest() const;  // of the survivors, also while its agent is down
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count())) + 1)); }

  ClusterWorld& world_;
  Rng rng_;
  Instant until_;
  std::vector<Victim> victims_;
  HostSet away_;
  std::size_t back_ = 0;  // of the victims, in their order
  bool tried_ = false, cut_ = false, alone_ = false;
  std::uint32_t refused_ = 0;
  Instant ask_at_{}, back_at_{};
};

}  // namespace dtrain::sim
