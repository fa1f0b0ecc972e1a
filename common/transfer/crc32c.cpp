#include "common/transfer/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace dtrain::transfer {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78u;  // reflected

// kTables[k][b]: the effect of byte b followed by k zero bytes.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ kPolynomial : crc >> 1;
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k)
    for (std::uint32_t b = 0; b < 256; ++b) tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 0xff];
  return tables;
}
constexpr Tables kTables = make_tables();

std::uint64_t load64(const char* p) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(p[i]);
  return value;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t extend_sse42(std::uint32_t crc, std::string_view bytes) {
  std::uint64_t state = crc ^ 0xffffffffu;
  const char* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, p, sizeof word);
    state = _mm_crc32_u64(state, word);
  }
  auto narrow = static_cast<std::uint32_t>(state);
  for (; left > 0; ++p, --left) narrow = _mm_crc32_u8(narrow, static_cast<unsigned char>(*p));
  return narrow ^ 0xffffffffu;
}
#endif

}  // namespace

std::uint32_t crc32c_extend_portable(std::uint32_t crc, std::string_view bytes) {
  crc ^= 0xffffffffu;
  const char* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) {
    const std::uint64_t word = load64(p) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][word >> (8 * i) & 0xff];
  }
  for (; left > 0; ++p, --left) crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<unsigned char>(*p)) & 0xff];
  return crc ^ 0xffffffffu;
}

std::uint32_t crc32c_extend(std::uint32_t crc, std::string_view bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return extend_sse42(crc, bytes);
#endif
  return crc32c_extend_portable(crc, bytes);
}

}  // namespace dtrain::transfer
