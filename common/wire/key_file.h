// The text of a cluster key file, which dtrainctl keygen writes and dtraind reads.
//
//     # dtrain cluster key. Copy it to all hosts, mode 0600. First pair: serves; all: accepted.
//     dtrain-key-v1 <public, 64 hex digits> <secret, 64 hex digits>
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace dtrain::wire {

inline constexpr std::size_t kKeyFileBytes = 16 << 10;  // larger: refused unread
inline constexpr std::size_t kKeyPairs = 8;             // in one file; more: refused

using KeyBytes = std::array<std::uint8_t, 32>;
struct KeyText {
  KeyBytes public_key{}, secret_key{};
};
// 64 hex digits, in lower case; either case is read.
std::string key_text(const KeyBytes& key);
void append_key(std::string& out, const KeyBytes& key);
std::optional<KeyBytes> parse_key(std::string_view digits);
// Cuts the next word off a line of a key file; "" at its end.
std::string_view next_key_word(std::string_view& line);

std::string render_key_file(const std::vector<KeyText>& keys);
// Errors name the line; secrets never appear in messages.
Result<std::vector<KeyText>> parse_key_file(std::string_view text);

}  // namespace dtrain::wire
