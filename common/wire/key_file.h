// The text of a cluster key file: what dtrainctl keygen writes and dtraind reads.
//
//     # dtrain cluster key. Copy it to all hosts, mode 0600. First pair: serves; all: accepted.
//     dtrain-key-v1 <public, 64 hex digits> <secret, 64 hex digits>
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace dtrain::wire {

inline constexpr std::size_t kKeyFileBytes = 16 << 10;  // larger: refused unread
inline constexpr std::size_t kKeyPairs = 8;             // in one file; more: refused

struct KeyText {
  std::array<std::uint8_t, 32> public_key{}, secret_key{};
};
std::string render_key_file(const std::vector<KeyText>& keys);
// Errors name the line; secrets never appear in messages.
Result<std::vector<KeyText>> parse_key_file(std::string_view text);

}  // namespace dtrain::wire
