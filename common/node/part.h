// A part of Node: an object with a purpose and a state of its own. Node tells each part what it overrides here, in the order of one list
// (Node::Impl::parts); what concerns one part alone is a function of that part.
#pragma once

#include <cstdint>
#include <string>

#include "common/node/event.h"

namespace dtrain::node {

class Part {
 public:
  // While what the part needs is missing it is not driven and has no deadline, and answers for it are dropped.
  enum class Runs : unsigned char {
    always,
    with_disk,  // until the disk fails
    with_log,   // and while the log is neither about to begin nor to be given up
  };
  explicit Part(Runs runs) : runs_(runs) {}
  virtual ~Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  Runs runs() const { return runs_; }

  // ---- of each turn
  //
  // Once, after the event was handled and before the log is followed.
  virtual void drive() {}
  // After each round of the log's outputs in this turn. What is proposed here goes to the disk together with all else of the turn.
  virtual void log_advanced() {}
  // Once, after the log was followed and the members were told.
  virtual void end_turn() {}
  // The earliest instant at which tick() and the others are to be called again; kNever: no time is waited for.
  virtual Instant deadline() const { return kNever; }
  virtual void tick() {}  // a deadline of this or another part was reached

  // ---- what happens; each may concern none of what the part has
  virtual void members_changed() {}
  virtual void closed(ConnectionId) {}
  virtual void relay_ended(const RelayEnded&) {}

  // Why this host gets no new tasks, as far as this part knows; "": it may get some.
  virtual std::string unfit() const { return ""; }

  // ---- what a connection of this part's own brings (Connections)
  virtual void relay_answered(const RelayAnswered&) {}
  virtual void blob_written(const BlobWritten&) {}
  virtual void checkpoint_written(const CheckpointWritten&) {}

  // ---- answers to effects whose ticket this part took (Tickets)
  virtual void persisted(std::uint64_t /*ticket*/) {}
  virtual void scanned(const CheckpointsScanned&) {}
  virtual void verified(const CheckpointVerified&) {}
  virtual void quarantined(const CheckpointQuarantined&) {}
  virtual void hook_ended(const HookEnded&) {}
  virtual void hook_told(const HookProgress&) {}

 private:
  Runs runs_;
};

}  // namespace dtrain::node
