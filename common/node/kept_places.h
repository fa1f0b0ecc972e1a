// Places that are taken though the ledger does not show it: those booked by a proposal in flight, and those held for a
// job that is to leave a drained host, or to begin again with all its tasks. Free capacity is what the ledger and these leave over.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/cluster/placement.h"
#include "common/node/context.h"

namespace dtrain::node {

// Of a generation that is proposed and not yet applied: the next placement must count them.
struct BookedPlaces {
  std::uint64_t index = 0;  // of the proposal
  JobId job = 0;
  job::JobSpec spec;
  std::vector<cluster::TaskPlacement> placements;
};

// For a job that is to leave a drained host, or to grow, until the job takes them or has no use for them.
struct HeldPlaces {
  NodeId host;  // the drained host; "": the job is to grow
  Generation generation = 0;
  std::uint64_t proposal = 0;  // index of the command in flight that ends the tasks; 0: it is applied
  bool whole = false;          // places for the whole job; false: only for the tasks that move
  job::JobSpec spec;
  std::vector<cluster::TaskPlacement> placements;
};

class KeptPlaces {
 public:
  explicit KeptPlaces(const Context& context) : c_(context) {}

  void reset();
  void applied(std::uint64_t index);  // entries up to this index are applied
  void drop_unused();                 // to be called before places are searched for jobs on drained hosts

  std::vector<BookedPlaces>& booked() { return booked_; }
  std::map<JobId, HeldPlaces>& held() { return held_; }
  const HeldPlaces* held_for(JobId id) const;  // nullptr: none

  // Free capacity now; the places held for `except` count as free.
  cluster::Capacity free(JobId except = 0) const;
  // Free capacity if all tasks of the job ended; their ports rest.
  cluster::Capacity free_without(const cluster::JobRecord& job) const;
  // The same hosts with nothing on them.
  cluster::Capacity empty() const;
  // True if these, which are held for the job, are still free. Only a change of the hosts can have taken them.
  bool fits(JobId id, const job::JobSpec& spec, const std::vector<cluster::TaskPlacement>& placements) const;

 private:
  cluster::PortRange task_ports() const { return {c_.options.task_port_first, c_.options.task_port_last}; }

  const Context& c_;
  std::vector<BookedPlaces> booked_;
  std::map<JobId, HeldPlaces> held_;
};

}  // namespace dtrain::node
