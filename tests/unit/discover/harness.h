// Calls the real dtrain-discover as the agent does.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "agent/host/discover.h"
#include "tests/support/beside.h"

namespace dtrain::discover {

inline const std::string kProgram = test::beside("dtrain-discover");

inline Result<host::Machine> discover_root(const std::string& root, std::vector<std::string> exclude = {}, const std::string& nvml = "",
                                           Duration patience = host::kDiscoveryPatience, std::vector<host::KnownGpu> known = {}) {
  host::DiscoverOptions options;
  options.program = kProgram;
  options.root = root;
  options.exclude_gpus = std::move(exclude);
  options.known_gpus = std::move(known);
  options.nvml = nvml;
  options.patience = patience;
  return host::discover(options);
}

inline Result<host::Machine> discover_file(const std::string& file) {
  host::DiscoverOptions options;
  options.program = kProgram;
  options.topology_file = file;
  return host::discover(options);
}

inline std::string warnings_of(const host::Machine& machine) {
  std::string all;
  for (const Error& warning : machine.warnings) all += warning.text() + "\n";
  return all;
}

inline std::vector<std::string> addresses_of(const host::Machine& machine) {
  std::vector<std::string> all;
  for (const node::Gpu& gpu : machine.gpus) all.push_back(gpu.pci);
  return all;
}

// A directory of the test's own.
class Directory {
 public:
  Directory();
  ~Directory();
  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text, bool executable = false) const;

 private:
  std::filesystem::path path_;
};

}  // namespace dtrain::discover
