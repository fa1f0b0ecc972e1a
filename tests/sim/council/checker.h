// A checker of world council watches one invariant. It is told of every step of a member, of what is sent, made durable,
// committed, applied and answered, and reports the first violation; the run ends there. One file each in checkers/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/raft/raft.h"
#include "tests/sim/council/links.h"
#include "tests/sim/council/register_machine.h"

namespace dtrain::sim::council {

using Slot = std::uint32_t;  // of a machine

// The truth about one machine and the member on it.
struct Truth {
  MemberId id;  // of its data directory: another when the disk was lost
  std::string name;
  std::uint32_t process = 0;  // counts the runs of its agent
  bool runs = false, paused = false;
  bool rolled_back = false;  // its disk is an older copy: what it promised since is forgotten
  bool disk_failed = false;  // in this boot
  bool superseded = false;   // what is on its disk is of a history that recover-quorum ended
  Instant started{}, ended{}, stopped{}, resumed{};
  Instant cut_off_since = kNever;  // what it sends reaches no majority, or no majority's reach it; kNever: both do
};

// One read or one write of a client, asked again and again until it is answered or given up.
struct Operation {
  std::uint64_t request = 0;  // unique; a write's request id
  bool write = false;
  Instant asked{};  // first
};

class WorldView {
 public:
  virtual ~WorldView() = default;
  virtual Instant now() const = 0;
  virtual Slot slots() const = 0;
  virtual const Truth& truth(Slot slot) const = 0;
  virtual const raft::Raft* core(Slot slot) const = 0;    // of the process that runs; none: nullptr
  virtual const raft::Stored& disk(Slot slot) const = 0;  // what is durable
  virtual const RegisterMachine& machine(Slot slot) const = 0;
  virtual std::optional<Slot> slot_of(const MemberId& id) const = 0;  // none: its disk is lost
  virtual bool persists(Slot slot) const = 0;                         // something is under way to its disk
  virtual raft::Configuration durable_configuration(Slot slot) const = 0;
  virtual bool linked(Slot a, Slot b) const = 0;  // no cut between them in either direction
  virtual const raft::RaftOptions& options() const = 0;
  virtual bool only_stalls() const = 0;    // nothing is wrong in this run but stops of up to 800 ms and drifting clocks
  virtual bool any_disk_lost() const = 0;  // or put back: a majority's acknowledgements need not be on disks any more
  virtual bool busy() const = 0;           // faults may happen
  virtual void violation(std::string_view invariant, std::string what) = 0;

  const std::string& name(Slot slot) const { return truth(slot).name; }
};

class Checker {
 public:
  explicit Checker(WorldView& world) : world_(world) {}
  virtual ~Checker() = default;
  virtual std::string_view name() const = 0;
  virtual void started(Slot) {}
  virtual void ended(Slot) {}
  virtual void stepping(Slot, const raft::Input&) {}  // before
  virtual void stepped(Slot) {}                       // after; its outputs are told below
  virtual void sent(Slot, const raft::Send&) {}       // handed to the network
  virtual void persisting(Slot, const raft::Persist&) {}
  virtual void installed(Slot, const raft::StoredSnapshot&) {}
  virtual void applied(Slot, const raft::LogEntry&, const RegisterMachine::Outcome&) {}    // committed, and applied
  virtual void asked(const Operation&) {}                                                  // by a client, for the first time
  virtual void answered(const raft::History& /*by*/, const Operation&, const Reading&) {}  // a client has its answer
  virtual void recovered(Slot, const raft::History& /*old*/) {}                            // its disk begins a new history
  virtual void sampled() {}                                                                // now and then
  virtual void healed() {}                                                                 // faults are over
  virtual void at_rest() {}                                                                // for long enough: all must have converged

 protected:
  // recover-quorum on `slot`: the new history includes so much of what it had applied. Entries that a leader applied
  // because the others had them need not be on its own disk yet.
  std::uint64_t kept(Slot slot) const { return std::min(world_.machine(slot).applied(), world_.disk(slot).log.back().index - 1); }
  void violation(std::string what) { world_.violation(name(), std::move(what)); }
  WorldView& world_;
};

using CheckerList = std::vector<std::unique_ptr<Checker>>;
CheckerList all_checkers(WorldView& world);  // checkers/all.cpp

}  // namespace dtrain::sim::council
