// A checker of world formation watches one invariant. It is told what is sent, what is made durable and which logs
// work, and reports the first violation; the run ends there. One file each in checkers/.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/cluster/formation.h"

namespace dtrain::sim::formation {

namespace core = cluster::formation;
using Slot = std::uint32_t;  // of a machine; its seat, too

struct Disk {
  MemberId id;  // another when the disk was lost
  core::Record record;
  std::optional<core::Founding> log;  // that began here
  MemberId member;                    // of the cluster that admitted this machine
};

class WorldView {
 public:
  virtual ~WorldView() = default;
  virtual Slot slots() const = 0;
  virtual const Disk& disk(Slot slot) const = 0;
  virtual std::string status(Slot slot) const = 0;
  virtual bool runs(Slot slot) const = 0;
  virtual void violation(std::string_view invariant, std::string what) = 0;
};

inline std::string name(Slot slot) { return "h" + std::to_string(slot + 1); }

class Checker {
 public:
  explicit Checker(WorldView& world) : world_(world) {}
  virtual ~Checker() = default;
  virtual std::string_view name() const = 0;
  virtual void said(Slot, const core::FormationReport&) {}
  virtual void stored(Slot, const core::Record& /*before*/, const core::Persist&) {}  // on its disk now
  // A majority of its voters has the log and can communicate: it commits entries.
  virtual void works(const core::Founding&) {}
  virtual void at_rest() {}  // for long enough: all must have converged

 protected:
  void violation(std::string what) { world_.violation(name(), std::move(what)); }
  WorldView& world_;
};

using CheckerList = std::vector<std::unique_ptr<Checker>>;
CheckerList all_checkers(WorldView& world);  // checkers/all.cpp

}  // namespace dtrain::sim::formation
