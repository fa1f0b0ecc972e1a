#include "common/base/member_id.h"

namespace dtrain {
namespace {

constexpr std::size_t kHalfDigits = 16;

void append_hex(std::string& out, std::uint64_t value) {
  for (int shift = 60; shift >= 0; shift -= 4) out.push_back("0123456789abcdef"[(value >> shift) & 15]);
}

std::optional<std::uint64_t> parse_hex(std::string_view digits) {
  std::uint64_t value = 0;
  for (const char c : digits) {
    if (c >= '0' && c <= '9') value = value << 4 | static_cast<std::uint64_t>(c - '0');
    else if (c >= 'a' && c <= 'f') value = value << 4 | static_cast<std::uint64_t>(c - 'a' + 10);
    else return std::nullopt;
  }
  return value;
}

}  // namespace

NodeId MemberId::text() const {
  std::string out;
  out.reserve(2 * kHalfDigits);
  append_hex(out, high);
  append_hex(out, low);
  return out;
}

std::optional<MemberId> MemberId::parse(std::string_view text) {
  if (text.size() != 2 * kHalfDigits) return std::nullopt;
  const auto high = parse_hex(text.substr(0, kHalfDigits)), low = parse_hex(text.substr(kHalfDigits));
  if (!high || !low) return std::nullopt;
  return MemberId{*high, *low};
}

}  // namespace dtrain
