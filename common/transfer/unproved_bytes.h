// What formats have in common whose bytes have no checksums: samples of them are part of a checkpoint's identity, and its deep check reads
// them, so that at least it is known that they can be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/transfer/format.h"

namespace dtrain::transfer {

inline constexpr std::size_t kSamples = 16, kSampleBytes = 4096;

// Some of the bytes from `begin` to the end of a file of `size` bytes; of a small file all. Two steps of a training differ in them.
Result<std::string> read_samples(FileAccess& files, const std::string& name, std::uint64_t begin, std::uint64_t size);

class ReadableCheck : public PartCheck {
 public:
  void feed(std::string_view) override {}
  bool finish() override { return true; }
};

// A stretch of a file as the only part of a checkpoint.
class UnprovedBytes : public Contents {
 public:
  UnprovedBytes(std::string name, std::uint64_t begin, std::uint64_t end) : name_(std::move(name)), begin_(begin), end_(end) {}
  std::size_t part_count() const override { return end_ > begin_ ? 1 : 0; }
  Part part(std::size_t) const override { return {name_, begin_, end_ - begin_}; }
  std::unique_ptr<PartCheck> check(std::size_t) const override { return std::make_unique<ReadableCheck>(); }
  std::string damage(std::size_t) const override { return " cannot be read"; }

 private:
  const std::string name_;
  const std::uint64_t begin_, end_;
};

}  // namespace dtrain::transfer
