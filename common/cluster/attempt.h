// One try to place a job: takes room on a copy of the free capacity, role by role, and can go back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/cluster/score.h"

namespace dtrain::cluster {

// Where one task of the request was put.
struct Choice {
  HostNumber host = 0;
  std::uint64_t gpus = 0;
};

struct Wishes {
  HostOrder order = HostOrder::pack;
  const std::vector<HostNumber>* among = nullptr;          // consider only these hosts; nullptr: all
  const std::vector<std::uint32_t>* rack_ranks = nullptr;  // by host
};

class Attempt {
 public:
  // `standing`: number of the job's tasks that each host has already; empty: none anywhere.
  Attempt(const Capacity& capacity, const std::vector<Fit>& fits, std::size_t tasks, bool with_ports, std::vector<std::uint32_t> standing);

  // Places all tasks of fits[f], or none. O(hosts + tasks * log hosts). With `order` pack, close or tight, a role is
  // always placed if there is room for that many equal tasks.
  bool put(std::size_t f, const Wishes& wishes);
  // Places the next `count` tasks of fits[f] on `h`, which has slots for them.
  void put_on(std::size_t f, HostNumber h, std::uint32_t count);
  // Tasks of fits[f] that `h` can take now, anti-affinity included.
  std::uint32_t slots(std::size_t f, HostNumber h) const;
  // Tasks of fits[f] that all hosts can take now; counts up to `enough`.
  std::uint64_t slots_in_all(std::size_t f, std::uint64_t enough) const;

  std::size_t mark() const { return steps_.size(); }
  void back_to(std::size_t mark);

  const Capacity& now() const { return now_; }
  const std::vector<Choice>& choices() const { return choices_; }  // by task of the request

 private:
  struct Step {
    std::size_t fit = 0, task = 0;
    HostNumber host = 0;
    std::uint64_t gpus = 0;
  };
  bool group_taken(std::size_t f, HostNumber h) const;
  HostNow look(std::size_t f, HostNumber h, const Wishes& wishes) const;

  Capacity now_;
  const std::vector<Fit>& fits_;
  bool with_ports_;
  std::vector<Choice> choices_;
  std::vector<Step> steps_;
  std::vector<std::uint32_t> placed_;            // by fit: number of its tasks that are placed
  std::vector<std::vector<bool>> groups_taken_;  // by fit
  std::vector<std::uint32_t> own_;               // by host: tasks of this job
};

}  // namespace dtrain::cluster
