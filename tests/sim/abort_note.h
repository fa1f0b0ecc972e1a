// Prints the run's parameters when a broken invariant of the code under test (CHECK) aborts the simulator.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string>

namespace dtrain::sim {

// While an object lives, an abort prints "replay: COMMAND". One at a time.
class AbortNote {
 public:
  explicit AbortNote(const std::string& replay_command) {
    const std::string text = "replay: " + replay_command + "\n";
    const std::size_t length = std::min(text.size(), sizeof text_ - 1);
    std::memcpy(text_, text.data(), length);
    text_[length] = '\0';
    std::signal(SIGABRT, tell);
  }
  ~AbortNote() { std::signal(SIGABRT, SIG_DFL); }
  AbortNote(const AbortNote&) = delete;
  AbortNote& operator=(const AbortNote&) = delete;

 private:
  // Uses only what a signal handler may call; returning from it ends the process as without it.
  static void tell(int) { [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text_, std::strlen(text_)); }
  static inline char text_[512] = {};
};

}  // namespace dtrain::sim
