#include "agent/dtrainctl/signals.h"

#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace dtrain::ctl {

Signals::Signals(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  fd_ = UniqueFd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

Signals::~Signals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int Signals::next() {
  signalfd_siginfo info{};
  return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

RawTerminal::RawTerminal(int fd) : fd_(fd) {
  termios now{};
  if (::tcgetattr(fd, &now) != 0) return;
  before_ = now;
  ::cfmakeraw(&now);
  ::tcsetattr(fd, TCSADRAIN, &now);
}

RawTerminal::~RawTerminal() {
  if (before_) ::tcsetattr(fd_, TCSADRAIN, &*before_);
}

std::optional<WindowSize> window_size(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return std::nullopt;
  return WindowSize{size.ws_row, size.ws_col};
}

}  // namespace dtrain::ctl
