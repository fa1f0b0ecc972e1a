#include "common/transfer/unproved_bytes.h"

#include <algorithm>

namespace dtrain::transfer {

Result<std::string> read_samples(FileAccess& files, const std::string& name, std::uint64_t begin, std::uint64_t size) {
  std::string samples;
  const std::uint64_t step = (size - begin) / kSamples;
  for (std::size_t i = 0; i < kSamples; ++i) {
    // The last sample ends with the file, so that all of a small one is in them.
    const std::uint64_t from = begin + i * step, until = i + 1 < kSamples ? from + step : size;
    const std::uint64_t most = std::min<std::uint64_t>(until - from, kSampleBytes);
    const auto sample = files.read(name, until - most, most);
    if (!sample) return sample;
    samples += *sample;
  }
  return samples;
}

}  // namespace dtrain::transfer
