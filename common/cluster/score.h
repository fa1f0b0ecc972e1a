// In which order a role's tasks take hosts. A score is a few whole numbers, compared one after the other; the lowest is
// taken. The last is the host's number, so that no two hosts are alike and the same request is answered alike.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/cluster/fit.h"

namespace dtrain::cluster {

enum class HostOrder : unsigned char {
  pack,    // where the job is already, then hosts that are in use, the fullest first: keeps whole hosts free
  close,   // for a collective job: the fullest host that holds all that is left, else the one that holds most of it
  spread,  // fewest tasks of the job, then fewest tasks at all
  tight    // the fullest first, whatever else was wished: finds room where a wish did not
};

using Score = std::array<std::uint32_t, 5>;

// What an attempt knows of a host when it asks.
struct HostNow {
  HostNumber host = 0;
  std::uint32_t slots = 0;   // tasks of the role that it can take
  std::uint32_t own = 0;     // tasks of this job here
  std::uint32_t load = 0;    // tasks of anybody
  std::uint32_t rack = 0;    // rank of its rack; racks that hold more of the job come first
  bool avoided = false;      // has GPUs, and the role would rather be elsewhere
};

// `left`: tasks of the role still to be placed.
Score score(const HostNow& now, HostOrder order, std::uint32_t left);

}  // namespace dtrain::cluster
