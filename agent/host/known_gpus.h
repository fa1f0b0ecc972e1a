// The number of each GPU of this machine, as long as its data directory exists: the ledger names a GPU by its number,
// so a number must never come to mean another card while a task may hold it. A file of lines, readable for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace dtrain::host {

// GPUs of one machine. Further present ones are left out, with a warning; of those that are no longer there, the ones
// with the lowest numbers are forgotten.
inline constexpr std::size_t kMostGpus = 32;
inline constexpr std::uint32_t kMostIndex = 999'999;     // of a file; a larger one is damage
inline constexpr std::size_t kKnownGpusBytes = 4 << 10;  // a larger file was not written by dtrain

struct KnownGpu {
  std::uint32_t index = 0;
  std::string pci;
  bool operator==(const KnownGpu&) const = default;
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("pci", pci);
  }
};

// "INDEX PCI", as a line of the file and an argument of dtrain-discover.
std::string known_gpu_text(const KnownGpu& gpu);
Result<KnownGpu> parse_known_gpu(std::string_view text);  // invalid

// The content of the whole file. ErrorCode::invalid: not of this version, or with a duplicate number or address.
std::string known_gpus_file(const std::vector<KnownGpu>& gpus);
Result<std::vector<KnownGpu>> parse_known_gpus(std::string_view text);

}  // namespace dtrain::host
