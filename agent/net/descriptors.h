// The number of files that this process may have open. Each connection needs one, each socket of ZeroMQ another.
#pragma once

#include <cstddef>

namespace dtrain::net {

inline constexpr std::size_t kDescriptorsWanted = 16'384;  // for a flood of strangers: 2 s (handshake) x 1,000/s x lanes, and links
inline constexpr std::size_t kDescriptorsNeeded = 1'024;   // with fewer, the start reports it

// Raises the soft limit up to the hard one, at most to kDescriptorsWanted; never lowers it. Returns the limit then.
std::size_t raise_descriptor_limit();

}  // namespace dtrain::net
