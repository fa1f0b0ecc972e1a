#include "common/transfer/crc32c.h"

#include <isa-l/crc.h>

namespace dtrain::transfer {

std::uint32_t crc32c_extend(std::uint32_t crc, std::string_view bytes) {
  constexpr std::size_t kBytesAtOnce = 1 << 30;  // the library counts in int
  while (!bytes.empty()) {
    const std::string_view some = bytes.substr(0, kBytesAtOnce);
    auto* begin = reinterpret_cast<unsigned char*>(const_cast<char*>(some.data()));  // which it does not change
    crc = ~::crc32_iscsi(begin, static_cast<int>(some.size()), ~crc);
    bytes.remove_prefix(some.size());
  }
  return crc;
}

}  // namespace dtrain::transfer
