// Which number each GPU of this machine has, for as long as its data directory lives: the ledger names a GPU by its number, so
// that a number must never come to mean another card while a task may still hold it. A file of lines, for people too.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace dtrain::host {

// Of one machine. Further ones that are there are left out, with a warning; of those that were there once the ones with the lowest
// numbers are forgotten.
inline constexpr std::size_t kMostGpus = 32;
inline constexpr std::uint32_t kMostIndex = 999'999;      // of a file; a larger one is damage
inline constexpr std::size_t kKnownGpusBytes = 4 << 10;  // a larger file is none of ours

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

// The whole file. invalid: not one of this version, or a number or an address twice.
std::string known_gpus_file(const std::vector<KnownGpu>& gpus);
Result<std::vector<KnownGpu>> parse_known_gpus(std::string_view text);

}  // namespace dtrain::host
