#include "common/transfer/digest.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace dtrain::transfer {
namespace {

constexpr std::size_t kBlock = 64;

// FIPS 180-4, 4.2.2.
alignas(16) constexpr std::uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr std::uint32_t rotr(std::uint32_t x, int n) { return x >> n | x << (32 - n); }

void compress_portable(std::array<std::uint32_t, 8>& state, const unsigned char* block) {
  std::uint32_t w[64];
  for (int i = 0; i < 16; ++i)
    w[i] =
        std::uint32_t{block[4 * i]} << 24 | std::uint32_t{block[4 * i + 1]} << 16 | std::uint32_t{block[4 * i + 2]} << 8 | block[4 * i + 3];
  for (int i = 16; i < 64; ++i) {
    const std::uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const std::uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const std::uint32_t t1 = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const std::uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::uint32_t worked[8] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += worked[i];
}

#if defined(__x86_64__)
bool has_sha_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kShaBit = 1u << 29;  // leaf 7, EBX
  return __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kShaBit) != 0;
}

// The instructions keep the eight words as two vectors, {A,B,E,F} and {C,D,G,H}, high to low, and do two rounds each.
__attribute__((target("sha,sse4.1"))) void compress_accelerated(std::array<std::uint32_t, 8>& state, const unsigned char* blocks,
                                                                std::size_t count) {
  const auto pack = [](std::uint32_t w3, std::uint32_t w2, std::uint32_t w1, std::uint32_t w0) {
    return _mm_set_epi32(static_cast<int>(w3), static_cast<int>(w2), static_cast<int>(w1), static_cast<int>(w0));
  };
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bll, 0x0405060700010203ll);
  __m128i abef = pack(state[0], state[1], state[4], state[5]);
  __m128i cdgh = pack(state[2], state[3], state[6], state[7]);
  for (; count > 0; --count, blocks += kBlock) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];  // the last sixteen words of the schedule, four to a vector
    for (int i = 0; i < 4; ++i) w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks) + i), big_endian);
#pragma GCC unroll 16
    for (int quad = 0; quad < 16; ++quad) {
      __m128i& current = w[quad % 4];
      if (quad >= 4) {
        const __m128i& last = w[(quad + 3) % 4];
        const __m128i w7 = _mm_alignr_epi8(last, w[(quad + 2) % 4], 4);
        const __m128i partial = _mm_add_epi32(_mm_sha256msg1_epu32(current, w[(quad + 1) % 4]), w7);
        current = _mm_sha256msg2_epu32(partial, last);
      }
      const __m128i k = _mm_load_si128(reinterpret_cast<const __m128i*>(kRound) + quad);
      const __m128i wk = _mm_add_epi32(current, k);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  alignas(16) std::uint32_t high[4], low[4];
  _mm_store_si128(reinterpret_cast<__m128i*>(high), abef);
  _mm_store_si128(reinterpret_cast<__m128i*>(low), cdgh);
  state = {high[3], high[2], low[3], low[2], high[1], high[0], low[1], low[0]};
}
#endif

}  // namespace

std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const char c : bytes) {
    hex.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    hex.push_back(kDigits[static_cast<unsigned char>(c) & 0xf]);
  }
  return hex;
}

std::string blake2b_hex(std::string_view bytes) {
  unsigned char digest[kDigestBytes];
  CHECK(crypto_generichash(digest, sizeof digest, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr, 0) == 0);
  return to_hex({reinterpret_cast<const char*>(digest), sizeof digest});
}

Sha256::Sha256() : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {
#if defined(__x86_64__)
  accelerated_ = has_sha_instructions();
#endif
}

Sha256 Sha256::portable() {
  Sha256 sha;
  sha.accelerated_ = false;
  return sha;
}

void Sha256::compress(const unsigned char* blocks, std::size_t count) {
#if defined(__x86_64__)
  if (accelerated_) return compress_accelerated(state_, blocks, count);
#endif
  for (; count > 0; --count, blocks += kBlock) compress_portable(state_, blocks);
}

void Sha256::update(std::string_view bytes) {
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t left = bytes.size();
  if (const std::size_t used = size_ % kBlock; used > 0) {
    const std::size_t part = std::min(left, kBlock - used);
    std::copy_n(p, part, pending_.data() + used);
    p += part, left -= part, size_ += part;
    if (used + part < kBlock) return;
    compress(pending_.data(), 1);
  }
  compress(p, left / kBlock);
  p += left - left % kBlock;
  size_ += left;
  std::copy_n(p, left % kBlock, pending_.data());
}

std::string Sha256::finish_hex() {
  const std::uint64_t bits = size_ * 8;
  constexpr std::size_t kLengthAt = kBlock - 8;
  std::string padding(1, '\x80');
  padding.append((kBlock + kLengthAt - 1 - size_ % kBlock) % kBlock, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) padding.push_back(static_cast<char>(bits >> shift));
  update(padding);
  std::string digest;
  for (const std::uint32_t word : state_)
    for (int shift = 24; shift >= 0; shift -= 8) digest.push_back(static_cast<char>(word >> shift));
  return to_hex(digest);
}

}  // namespace dtrain::transfer
