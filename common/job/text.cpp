#include "common/job/text.h"

#include <algorithm>

#include "common/base/limits.h"

namespace dtrain::job {

namespace {

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_lower(c) || is_decimal_digit(c) || (c >= 'A' && c <= 'Z'); }

// Bytes of the well-formed sequence at the start of `text`; 0 when it is not well formed.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;   // longer than needed
  if (lead == 0xed && byte(1) >= 0xa0) return 0;  // surrogates
  if (lead == 0xf0 && byte(1) < 0x90) return 0;   // longer than needed
  if (lead == 0xf4 && byte(1) >= 0x90) return 0;  // beyond U+10FFFF
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool is_job_name(std::string_view text) {
  const auto inner = [](char c) { return is_lower(c) || is_decimal_digit(c); };
  if (text.empty() || text.size() > limits::kNameBytes || !inner(text.front()) || !inner(text.back())) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) { return inner(c) || c == '-'; });
}

bool is_role_name(std::string_view text) {
  if (text.empty() || text.size() > limits::kRoleNameBytes || !is_lower(text.front())) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return is_lower(c) || is_decimal_digit(c); });
}

bool is_variable_name(std::string_view text) {
  const auto inner = [](char c) { return is_alnum(c) || c == '_' || c == '.' || c == '-'; };
  return !text.empty() && text.size() <= kVariableNameBytes && !is_decimal_digit(text.front()) && std::ranges::all_of(text, inner);
}

bool is_label_name(std::string_view text) {
  if (text.empty() || text.size() > kLabelBytes || !is_alnum(text.front()) || !is_alnum(text.back())) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.' || c == '/'; });
}

std::string in_quotes(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "`";
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const auto lead = static_cast<unsigned char>(text.front());
    if (out.size() + std::max<std::size_t>(length, 1) > kQuotedBytes) return out + "...`";
    if (length == 0 || lead < 0x20 || lead == 0x7f) {
      out += {'\\', 'x', kHex[lead >> 4], kHex[lead & 15]};
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out + "`";
}

std::string one_of(const std::vector<std::string>& words, std::string_view last) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " " + std::string(last) + " " : ", ";
    out += words[i].empty() ? "\"\"" : words[i];
  }
  return out;
}

}  // namespace dtrain::job
