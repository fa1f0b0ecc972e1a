#include "common/wire/key_file.h"

#include <algorithm>

namespace dtrain::wire {
namespace {

constexpr std::string_view kVersion = "dtrain-key-v1";
constexpr std::string_view kKeyFileHead = "# dtrain cluster key. Copy it to all hosts, mode 0600. First pair: serves; all: accepted.\n";
constexpr std::string_view kBlanks = " \t\r";
constexpr const char* kKeyFileNext = "make one with dtrainctl keygen FILE, or copy it again from a host where it works";

auto damaged_file(const std::string& cause) {
  return fail(ErrorCode::damaged, cause, kKeyFileNext);  // the caller names the file
}

}  // namespace

void append_key(std::string& out, const KeyBytes& key) {
  for (const std::uint8_t byte : key) {
    out.push_back("0123456789abcdef"[byte >> 4]);
    out.push_back("0123456789abcdef"[byte & 15]);
  }
}

std::string key_text(const KeyBytes& key) {
  std::string out;
  append_key(out, key);
  return out;
}

std::optional<KeyBytes> parse_key(std::string_view digits) {
  KeyBytes key{};
  if (digits.size() != 2 * key.size()) return std::nullopt;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const char c = digits[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return std::nullopt;
    key[i / 2] = static_cast<std::uint8_t>(key[i / 2] << 4 | digit);
  }
  return key;
}

std::string_view next_key_word(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

std::string render_key_file(const std::vector<KeyText>& keys) {
  std::string out(kKeyFileHead);
  for (const KeyText& key : keys) {
    out += kVersion;
    out += ' ';
    append_key(out, key.public_key);
    out += ' ';
    append_key(out, key.secret_key);
    out += '\n';
  }
  return out;
}

Result<std::vector<KeyText>> parse_key_file(std::string_view text) {
  if (text.size() > kKeyFileBytes) return damaged_file("longer than " + std::to_string(kKeyFileBytes) + " bytes");
  std::vector<KeyText> keys;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    // The content of a line is never quoted: it may be a secret in the wrong place.
    const auto wrong = [number](const std::string& cause) { return damaged_file("line " + std::to_string(number) + ": " + cause); };
    const std::string_view version = next_key_word(line);
    if (version.empty() || version.front() == '#') continue;
    if (version != kVersion) return wrong("does not begin with " + std::string(kVersion));
    const auto public_key = parse_key(next_key_word(line)), secret_key = parse_key(next_key_word(line));
    if (!public_key) return wrong("the public key is not of 64 hexadecimal digits");
    if (!secret_key) return wrong("the secret key is not of 64 hexadecimal digits");
    if (!next_key_word(line).empty()) return wrong("has more than a public and a secret key");
    for (const KeyText& earlier : keys)
      if (earlier.public_key == *public_key) return wrong("the same key a second time");
    if (keys.size() == kKeyPairs) return wrong("more than " + std::to_string(kKeyPairs) + " keys");
    keys.push_back({*public_key, *secret_key});
  }
  if (keys.empty()) return damaged_file("it holds no key");
  return keys;
}

}  // namespace dtrain::wire
