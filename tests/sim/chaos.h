// Makes faults happen at random times until a given instant. Each run draws which of the permitted faults occur in it
// and how often: rare combinations occur as surely as common ones.
#pragma once

#include <array>

#include "common/base/rng.h"
#include "tests/sim/cluster_world.h"
#include "tests/sim/faults.h"

namespace dtrain::sim {

class Chaos {
 public:
  Chaos(ClusterWorld& world, FaultSet allowed, Rng rng, Instant until);
  void begin();
  void stop_hosts(Rng rng);  // in order, one after the other, from now on
  void lose_hosts(Rng rng);  // for long, likewise

 private:
  struct Usual;
  static const Usual kUsual[];

  void next(const Usual& usual);
  SimHost& some_host(Fault fault);  // on which it happens
  void drain_later();
  void stop_later();
  void lose_later();
  std::size_t busy_from(std::size_t number);
  HostSet some_hosts();  // neither none nor all
  void kill_some_task(SimHost& host);
  void kill_some_shim(SimHost& host);
  void damage_some_checkpoint();
  Duration until_back();  // of a killed agent
  // Ends a lasting fault of `host` after up to `longest`, or when the time of faults is over.
  void for_a_while(SimHost& host, Duration longest, std::function<void()> undo);
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count())) + 1)); }

  ClusterWorld& world_;
  Rng rng_, operator_, stops_{0}, aways_{0};
  Instant until_;
  std::array<Duration, kFaultCount> mean_{};  // zero: does not come in this run
  bool drains_ = false;
};

}  // namespace dtrain::sim
