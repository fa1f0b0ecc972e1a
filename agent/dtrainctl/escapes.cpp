#include "agent/dtrainctl/escapes.h"

#include <utility>

#include "common/base/steering.h"

namespace dtrain::ctl {
namespace {

constexpr unsigned char kEscape = 0x1b, kBell = 0x07, kCancel = 0x18, kSubstitute = 0x1a;

bool between(unsigned char byte, unsigned char first, unsigned char last) { return byte >= first && byte <= last; }
bool begins_string(unsigned char byte) { return byte == ']' || byte == 'P' || byte == 'X' || byte == '^' || byte == '_'; }

}  // namespace

bool EscapeFilter::take_colored() { return std::exchange(colored_, false); }

void EscapeFilter::end_sequence(unsigned char last, std::string& out) {
  const std::string parameters = std::exchange(sequence_, {});
  // Other sequences end in m, too, but begin with a mark of their own: they set modes.
  if (last != 'm' || !colors_ || parameters.find_first_not_of("0123456789;:") != std::string::npos) return;
  out += "\033[" + parameters + "m";
  colored_ = parameters.find_first_not_of("0;:") != std::string::npos;
}

void EscapeFilter::text(unsigned char byte, std::string& out) {
  const bool continues = between(byte, 0x80, 0xbf);
  if (continues && continue_ > 0) {
    --continue_;
  } else {
    continue_ = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 0;
    if (byte == kEscape || byte == 0xc2) {  // the following bytes decide whether the latter begins an 8-bit control character
      in_ = byte == kEscape ? In::escape : In::half_control;
      return;
    }
    if (byte == 0xe2) {
      continue_ = 0;
      begun_ = "\xe2";
      in_ = In::turn;
      return;
    }
    if (between(byte, 0xc3, 0xdf)) continue_ = 1;
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7f || between(byte, 0x80, 0x9f);
    if (control) return;
  }
  out += static_cast<char>(byte);
}

// Returns false if the byte belongs to what follows and must be looked at again.
bool EscapeFilter::step(unsigned char byte, std::string& out) {
  const auto become = [&](In next) { return in_ = next, length_ = 0, true; };
  switch (in_) {
    case In::text: text(byte, out); return true;
    case In::half_control:
      in_ = In::text;
      if (byte == 0x9b) return become(In::sequence);
      if (byte == 0x90 || byte == 0x98 || between(byte, 0x9d, 0x9f)) return become(In::string);
      if (between(byte, 0xa0, 0xbf)) out += "\xc2" + std::string(1, static_cast<char>(byte));
      return between(byte, 0x80, 0xbf);
    case In::turn: {
      const bool whole = begun_.size() == 2, continues = between(byte, 0x80, 0xbf);
      if (continues) begun_ += static_cast<char>(byte);
      if (continues && !whole) return true;
      in_ = In::text;
      if (steering_bytes(begun_) == 0) out += begun_;
      return continues;
    }
    case In::escape:
      if (byte == '[') return become(In::sequence);
      if (begins_string(byte)) return become(In::string);
      if (between(byte, 0x20, 0x2f)) return become(In::charset);
      in_ = In::text;
      return between(byte, 0x30, 0x7e);
    case In::charset:
      if (between(byte, 0x20, 0x2f)) return true;
      in_ = In::text;
      return between(byte, 0x30, 0x7e);
    case In::sequence:
      if (between(byte, 0x20, 0x3f) && sequence_.size() < kSequenceBytes) {
        sequence_ += static_cast<char>(byte);
        return true;
      }
      in_ = In::text;
      if (between(byte, 0x40, 0x7e)) return end_sequence(byte, out), true;
      sequence_.clear();
      return false;
    case In::string:
      if (byte == kEscape) return in_ = In::string_escape, true;
      if (byte == '\n') return in_ = In::text, false;  // a line end is never dropped
      if (byte == kBell || byte == kCancel || byte == kSubstitute || ++length_ > kControlStringBytes) in_ = In::text;
      return true;
    case In::string_escape: in_ = byte == '\\' ? In::text : In::escape; return byte == '\\';
  }
  return true;
}

std::string EscapeFilter::pass(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();)
    if (step(static_cast<unsigned char>(bytes[i]), out)) ++i;
  return out;
}

}  // namespace dtrain::ctl
