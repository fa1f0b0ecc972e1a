// The order in which a role's tasks take hosts. A score is a few whole numbers, compared one after the other; the lowest
// is taken. The last number is the host's, so that no two hosts score the same and the same request gets the same answer.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/cluster/fit.h"

namespace dtrain::cluster {

enum class HostOrder : unsigned char {
  pack,    // hosts that the job is on already, then hosts in use, the fullest first: keeps whole hosts free
  close,   // for collective jobs: the fullest host that holds all remaining tasks, else the one that holds most of them
  spread,  // fewest tasks of the job, then fewest tasks
  tight    // the fullest first, whatever was wished: finds room where a wish did not
};

using Score = std::array<std::uint32_t, 5>;

// What an attempt knows of a host at this moment.
struct HostNow {
  HostNumber host = 0;
  std::uint32_t slots = 0;  // tasks of the role that it can still take
  std::uint32_t own = 0;    // tasks of this job here
  std::uint32_t load = 0;   // tasks of all jobs here
  std::uint32_t rack = 0;   // rank of its rack; racks that hold more of the job come first
  bool avoided = false;     // it has GPUs, and the role prefers hosts without
};

// `left`: tasks of the role that are yet to be placed.
Score score(const HostNow& now, HostOrder order, std::uint32_t left);

}  // namespace dtrain::cluster
