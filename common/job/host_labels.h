// Labels that hosts have without being given them.
#pragma once

#include <string_view>

namespace dtrain::job {

inline constexpr std::string_view kHostnameLabel = "kubernetes.io/hostname";  // the node's name, unless the host has a label of this name

}  // namespace dtrain::job
