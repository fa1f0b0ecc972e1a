// A checker of world membership watches one invariant. It is told of every change that a member announces and of what
// the world does to the members, and reports the first violation; the run ends there. One file each in checkers/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/gossip/membership.h"
#include "tests/sim/membership/figures.h"

namespace dtrain::sim::membership {

// The truth about one slot: a host, and the agent that runs on it.
struct Truth {
  wire::Identity identity;  // of the process that runs, or ran last
  std::uint32_t cluster = 0;
  bool runs = false, paused = false;
  bool admitted = false;         // the process belongs to a cluster
  bool leaving = false;          // was told to leave for good
  bool stopping = false;         // was told to stop
  bool impostor = false;         // a copy of another's data directory, or a second owner of a name
  Instant started{}, ended{};    // of the process; ended: kNever while it runs
  Instant calm_since{};          // nothing is wrong with process, host and its network; kNever: something is
  Instant stopped{}, resumed{};  // its last pause began, and ended

  // Fit: the member has had time to answer every accusation that a trouble of its own caused.
  static constexpr Duration kFit = 10s;
  bool fit(Instant now) const {
    return runs && !paused && admitted && !impostor && !leaving && !stopping && calm_since != kNever && now - calm_since >= kFit;
  }
};

enum class End : std::uint8_t { killed, vanished, stopped, left };

class WorldView {
 public:
  virtual ~WorldView() = default;
  virtual Instant now() const = 0;
  virtual std::uint32_t slots() const = 0;
  virtual const Truth& truth(std::uint32_t slot) const = 0;
  virtual std::vector<std::uint32_t> slots_of(const MemberId& id) const = 0;  // copies included
  virtual bool together(std::uint32_t a, std::uint32_t b) const = 0;          // on one side of every partition
  virtual bool lossless() const = 0;                                          // no packet is lost
  virtual bool network_whole() const = 0;                                     // no cut of any kind for as long as Truth::kFit
  virtual std::optional<gossip::MemberView> seen(std::uint32_t slot,
                                                 const MemberId& id) const = 0;  // by the running process
  virtual void each_seen(std::uint32_t slot, const std::function<void(const gossip::MemberView&)>& visit) const = 0;
  virtual std::size_t memory_bytes(std::uint32_t slot) const = 0;
  virtual Figures& figures() = 0;
  virtual void violation(std::string_view invariant, std::string what) = 0;

  bool fit(std::uint32_t slot) const { return truth(slot).fit(now()); }
  std::string name(std::uint32_t slot) const { return truth(slot).identity.name; }
};

class Checker {
 public:
  explicit Checker(WorldView& world) : world_(world) {}
  virtual ~Checker() = default;
  virtual std::string_view name() const = 0;
  virtual void started(std::uint32_t /*slot*/) {}
  virtual void ended(std::uint32_t /*slot*/, End) {}
  virtual void disturbed(std::uint32_t /*slot*/) {}  // paused, cut off, ...
  virtual void network_cut() {}                      // some cut begins
  virtual void network_healed() {}                   // the last one is over
  virtual void changed(std::uint32_t /*slot*/, const gossip::Change&) {}
  virtual void fact_told(std::uint32_t /*slot*/, const wire::Fact&) {}  // the member was handed a new value
  virtual void sampled() {}                                             // now and then
  virtual void at_rest() {}                                             // faults were over long enough: all must have converged

 protected:
  void violation(std::string what) { world_.violation(name(), std::move(what)); }
  WorldView& world_;
};

using CheckerList = std::vector<std::unique_ptr<Checker>>;
CheckerList all_checkers(WorldView& world);  // checkers/all.cpp

}  // namespace dtrain::sim::membership
