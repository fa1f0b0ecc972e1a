// Signals as something to poll for, and a terminal in raw mode; both are undone at the end of the scope.
#pragma once

#include <signal.h>
#include <termios.h>

#include <initializer_list>
#include <optional>

#include "agent/base/unique_fd.h"

namespace dtrain::ctl {

// While it lives, the given signals do not end the program but are read here. For this thread.
class Signals {
 public:
  explicit Signals(std::initializer_list<int> signals);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();
  int fd() const { return fd_.get(); }
  // The next one that arrived; 0: none.
  int next();

 private:
  sigset_t before_{};
  UniqueFd fd_;
};

// Keys are passed on as they are typed.
class RawTerminal {
 public:
  explicit RawTerminal(int fd);
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal();

 private:
  int fd_;
  std::optional<termios> before_;
};

struct WindowSize {
  unsigned rows = 24, columns = 80;
};
std::optional<WindowSize> window_size(int fd);

}  // namespace dtrain::ctl
