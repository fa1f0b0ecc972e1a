// Digests of content. SHA-256 is what a manifest names; BLAKE2b-256 is how dtrain itself names bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dtrain::transfer {

inline constexpr std::size_t kDigestBytes = 32;

// Lower-case hexadecimal.
std::string to_hex(std::string_view bytes);

std::string blake2b_hex(std::string_view bytes);

// Streaming SHA-256, with the processor's instructions where it has them (about five times as fast as without).
class Sha256 {
 public:
  void update(std::string_view bytes);
  std::string finish_hex();  // once; nothing may follow

  // Never uses special instructions: what a test compares with.
  static Sha256 portable();

  Sha256();

 private:
  void compress(const unsigned char* blocks, std::size_t count);
  std::array<std::uint32_t, 8> state_;
  std::array<unsigned char, 64> pending_{};
  std::uint64_t size_ = 0;  // bytes seen
  bool accelerated_ = false;
};

}  // namespace dtrain::transfer
