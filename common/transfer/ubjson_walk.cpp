#include <algorithm>

#include "common/transfer/text_walk.h"

namespace dtrain::transfer {
namespace {

constexpr unsigned kNone = ~0u;

// The bytes after the marker of a value of one size; kNone: it is no such marker.
unsigned bytes_of(char marker) {
  switch (marker) {
    case 'Z':
    case 'T':
    case 'F': return 0;
    case 'i':
    case 'U':
    case 'C': return 1;
    case 'I': return 2;
    case 'l':
    case 'd': return 4;
    case 'L':
    case 'D': return 8;
    default: return kNone;
  }
}

bool is_whole_number(char marker) { return std::string_view("iUIlL").find(marker) != std::string_view::npos; }

}  // namespace

bool UbjsonWalk::feed(std::string_view bytes) {
  while (good_ && !bytes.empty()) {
    if (skip_ > 0) {
      const auto some = static_cast<std::size_t>(std::min<std::uint64_t>(skip_, bytes.size()));
      bytes.remove_prefix(some);
      skip_ -= some;
      if (skip_ == 0) good_ = text_ended();
      continue;
    }
    good_ = take(bytes.front());
    bytes.remove_prefix(1);
  }
  return good_;
}

bool UbjsonWalk::take(char c) {
  switch (wants_) {
    case Wants::nothing: return false;
    case Wants::value: return begin_value(c);
    case Wants::element:
      if (c == ']' && !open_.back().counted) return open_.pop_back(), value_ended();
      return begin_value(c);
    case Wants::key:
      if (c == '}' && !open_.back().counted) return open_.pop_back(), value_ended();
      reads_key_ = true;
      return begin_number(c, Wants::length);
    case Wants::opened:  // the first byte in a container
      if (c == '$' || c == '#') {
        wants_ = c == '$' ? Wants::type : Wants::count;
        return true;
      }
      wants_ = open_.back().object ? Wants::key : Wants::element;
      return take(c);
    case Wants::type:
      open_.back().type = c;
      wants_ = Wants::count_sign;
      return bytes_of(c) != kNone || c == 'S' || c == 'H' || c == '[' || c == '{';
    case Wants::count_sign: wants_ = Wants::count; return c == '#';
    case Wants::length:
    case Wants::count: return begin_number(c, wants_);
    case Wants::number: number_ = number_ << 8 | static_cast<unsigned char>(c); return --number_left_ > 0 || number_ended();
  }
  return false;
}

bool UbjsonWalk::begin_value(char marker) {
  if (marker == 'N') return true;  // nothing, and no value
  if (marker == '{' || marker == '[') {
    Level level;
    level.object = marker == '{';
    open_.push_back(level);
    wants_ = Wants::opened;
    return open_.size() <= kWalkDepth;
  }
  if (marker == 'S' || marker == 'H') {
    reads_key_ = false;
    wants_ = Wants::length;
    return true;
  }
  const unsigned bytes = bytes_of(marker);
  if (bytes == kNone) return false;
  skip_ = bytes;
  skips_key_ = false;
  return skip_ > 0 || value_ended();
}

bool UbjsonWalk::begin_number(char marker, Wants purpose) {
  if (!is_whole_number(marker)) return false;
  purpose_ = purpose;
  number_left_ = bytes_of(marker);
  sign_bit_ = marker == 'U' ? 0 : std::uint64_t{1} << (8 * number_left_ - 1);
  number_ = 0;
  wants_ = Wants::number;
  return true;
}

bool UbjsonWalk::number_ended() {
  if ((number_ & sign_bit_) != 0) return false;
  if (purpose_ == Wants::length) {
    skip_ = number_;
    skips_key_ = reads_key_;
    wants_ = Wants::nothing;
    return skip_ > 0 || text_ended();
  }
  Level& level = open_.back();
  level.counted = true;
  level.left = number_;
  const unsigned bytes = level.type == 0 ? kNone : bytes_of(level.type);
  if (level.object || bytes == kNone) return next_element();
  open_.pop_back();
  skips_key_ = false;
  if (__builtin_mul_overflow(number_, std::uint64_t{bytes}, &skip_)) return false;
  wants_ = Wants::nothing;
  return skip_ > 0 || value_ended();
}

bool UbjsonWalk::text_ended() {
  if (!skips_key_) return value_ended();
  if (open_.back().type != 0) return begin_value(open_.back().type);
  wants_ = Wants::value;
  return true;
}

bool UbjsonWalk::value_ended() {
  if (open_.empty()) {
    wants_ = Wants::nothing;
    return true;
  }
  if (open_.back().counted) --open_.back().left;
  return next_element();
}

bool UbjsonWalk::next_element() {
  while (!open_.empty() && open_.back().counted && open_.back().left == 0) {
    open_.pop_back();
    if (!open_.empty() && open_.back().counted) --open_.back().left;
  }
  if (open_.empty()) {
    wants_ = Wants::nothing;
    return true;
  }
  const Level& level = open_.back();
  wants_ = level.object ? Wants::key : Wants::element;
  return level.object || level.type == 0 || begin_value(level.type);
}

}  // namespace dtrain::transfer
