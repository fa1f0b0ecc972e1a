// Makes a task's output fit for a terminal that shows other things, too: only colours pass. Other control sequences
// (clearing, moving, titles, modes, other screens), and characters that change the direction of text, are dropped
// completely, even if they arrive in pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrain::ctl {

// Limits of one sequence; a longer one is no sequence, and what follows is text again.
inline constexpr std::size_t kSequenceBytes = 64;         // ESC [ ... m
inline constexpr std::size_t kControlStringBytes = 4096;  // a title, a link

class EscapeFilter {
 public:
  explicit EscapeFilter(bool colors = false) : colors_(colors) {}
  std::string pass(std::string_view bytes);
  // True if a colour is on. The caller must then write kResetColor at the end of a line.
  bool take_colored();

 private:
  enum class In : unsigned char { text, half_control, escape, charset, sequence, string, string_escape, turn };
  void text(unsigned char byte, std::string& out);
  bool step(unsigned char byte, std::string& out);
  void end_sequence(unsigned char last, std::string& out);

  bool colors_, colored_ = false;
  In in_ = In::text;
  std::string sequence_;    // its parameters
  std::size_t length_ = 0;  // of a control string
  std::string begun_;       // bytes that may begin a character that changes the direction of text
  unsigned continue_ = 0;   // bytes that the character still lacks
};

inline constexpr std::string_view kResetColor = "\033[0m";

}  // namespace dtrain::ctl
