#include <algorithm>
#include <array>

#include "common/transfer/text_walk.h"

namespace dtrain::transfer {
namespace {

constexpr std::size_t kTokenBytes = 64;  // a longer number is none
constexpr unsigned kHexDigits = 4, kAfterBackslash = 5;
constexpr std::array<std::string_view, 6> kWords{"true", "false",    "null",
                                                 "NaN",  "Infinity", "-Infinity"};  // the last three as Python writes them

bool digit(char c) { return c >= '0' && c <= '9'; }

bool is_number(std::string_view text) {
  const auto digits = [&] {
    const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(count);
    return count;
  };
  if (text.starts_with('-')) text.remove_prefix(1);
  const bool zero = text.starts_with('0');
  const std::size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  return text.empty();
}

}  // namespace

bool JsonWalk::feed(std::string_view bytes) {
  for (std::size_t i = 0; good_ && i < bytes.size(); ++i) {
    if (in_string_ && escaped_ == 0) {  // the long stretches
      while (i < bytes.size() && bytes[i] != '"' && bytes[i] != '\\' && static_cast<unsigned char>(bytes[i]) >= 0x20) ++i;
      if (i == bytes.size()) break;
    }
    good_ = take(bytes[i]);
  }
  return good_;
}

bool JsonWalk::take(char c) {
  if (escaped_ == kAfterBackslash) {
    escaped_ = c == 'u' ? kHexDigits : 0;
    return std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos;
  }
  if (escaped_ > 0) {
    --escaped_;
    return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  }
  if (in_string_) {
    if (c == '\\') {
      escaped_ = kAfterBackslash;
      return true;
    }
    in_string_ = false;
    if (place_ == Place::key || place_ == Place::first_key) place_ = Place::colon;
    else value_ended();
    return c == '"';  // otherwise a control character
  }
  const bool in_token = digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' || c == '-' || c == '.';
  if (!token_.empty() && !in_token && !end_token()) return false;
  if (c == ' ' || c == '\n' || c == '\r' || c == '\t') return true;
  return begin_or_token(c);
}

bool JsonWalk::begin_or_token(char c) {
  switch (place_) {
    case Place::end: return false;
    case Place::colon: place_ = Place::value; return c == ':';
    case Place::after:
      if (c != ',') return close(c);
      place_ = open_.back() == '{' ? Place::key : Place::value;
      return true;
    case Place::first_key:
    case Place::key:
      if (c == '}' && place_ == Place::first_key) return close(c);
      in_string_ = true;
      return c == '"';
    case Place::first_value:
      if (c == ']') return close(c);
      break;
    case Place::value: break;
  }
  if (c == '"') return in_string_ = true;
  if (c == '{' || c == '[') {
    open_.push_back(c);
    place_ = c == '{' ? Place::first_key : Place::first_value;
    return open_.size() <= kWalkDepth;
  }
  if (c == '}' || c == ']' || c == ',' || c == ':') return false;
  token_.push_back(c);
  return token_.size() <= kTokenBytes;
}

bool JsonWalk::close(char c) {
  if (open_.empty() || c != (open_.back() == '{' ? '}' : ']')) return false;
  open_.pop_back();
  value_ended();
  return true;
}

bool JsonWalk::end_token() {
  const bool known = is_number(token_) || std::ranges::find(kWords, token_) != kWords.end();
  token_.clear();
  value_ended();
  return known;
}

}  // namespace dtrain::transfer
