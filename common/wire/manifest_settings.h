// What the cluster's configuration says about manifests of other systems: dtrainctl, which reads them, asks an agent for it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace dtrain::wire {

struct ManifestSettings {
  std::map<std::string, std::string> volumes;            // of a claim, secret or configMap: the directory on the hosts
  std::map<std::string, std::int32_t> priority_classes;  // their priority
  bool image_fallback = false;                           // a command that names an image runs on the host itself
  template <class V>
  void fields(V& v) {
    v("volumes", volumes);
    v("priority_classes", priority_classes);
    v("image_fallback", image_fallback);
  }
};

}  // namespace dtrain::wire
