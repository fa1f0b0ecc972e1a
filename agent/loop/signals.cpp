#include "agent/loop/signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace dtrain::loop {

Result<Signals> Signals::open(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  const int blocked = ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  if (blocked != 0) return fail(ErrorCode::io, std::string("could not block signals: ") + ::strerror(blocked));
  const int fd = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) return fail(ErrorCode::io, std::string("could not watch signals: ") + ::strerror(errno));
  return Signals(fd);
}

std::optional<Signal> Signals::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return Signal{static_cast<int>(info.ssi_signo), info.ssi_uid};
}

}  // namespace dtrain::loop
