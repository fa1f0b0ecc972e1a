// Characters of UTF-8 with which text can mislead whoever reads it: 8-bit control characters (U+0080..U+009F), which some
// terminals take for escape sequences, and characters that change the direction of text (U+202A..U+202E, U+2066..U+2069).
#pragma once

#include <string>
#include <string_view>

namespace dtrain {

// Returns the length in bytes of such a character at the beginning of `text`; 0: there is none.
inline std::size_t steering_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  if (byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) <= 0x9f) return 2;
  if (byte(0) != 0xe2) return 0;
  const bool turns = (byte(1) == 0x80 && byte(2) >= 0xaa && byte(2) <= 0xae) || (byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9);
  return turns ? 3 : 0;
}

// The character as \uXXXX, which JSON and double-quoted YAML decode.
inline std::string steering_escape(std::string_view character) {
  constexpr char kHex[] = "0123456789abcdef";
  unsigned code = character.size() == 2 ? static_cast<unsigned char>(character[1])
                                        : 0x2000u | (static_cast<unsigned char>(character[1]) & 0x3fu) << 6 |
                                              (static_cast<unsigned char>(character[2]) & 0x3fu);
  std::string out = "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHex[code >> shift & 15];
  return out;
}

// Escapes all such characters in a text in which escapes are allowed anywhere, such as JSON.
inline std::string with_steering_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = steering_bytes(text);
    if (length > 0) out += steering_escape(text.substr(0, length));
    else out += text.front();
    text.remove_prefix(length > 0 ? length : 1);
  }
  return out;
}

}  // namespace dtrain
