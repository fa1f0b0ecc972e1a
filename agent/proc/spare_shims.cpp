#include "agent/proc/spare_shims.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "agent/dtrain-shim/protocol.h"

namespace dtrain::proc {

namespace {

constexpr Duration kFirstPause = 2ms;  // between looks whether one has ended; doubled
constexpr Duration kLastPause = 1s;

}  // namespace

bool serve(const UniqueFd& socket, const std::string& directory) {
  shim::CommandPacket command;
  command.command = static_cast<std::uint16_t>(shim::Command::serve);
  command.a = static_cast<std::uint32_t>(directory.size());
  std::string packet(reinterpret_cast<const char*>(&command), sizeof command);
  packet += directory;
  return ::send(socket.get(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(packet.size());
}

bool is_dead(const UniqueFd& pidfd) {
  pollfd wait{pidfd.get(), POLLIN, 0};
  return pidfd && ::poll(&wait, 1, 0) == 1;
}

bool has_ended(const UniqueFd& pidfd) {
  siginfo_t info{};
  return ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd.get()), &info, WEXITED | WNOHANG) != 0 || info.si_pid != 0;
}

void kill_process(const UniqueFd& pidfd) {
  if (pidfd) ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
}

void SpareShims::keep(ShimProcess shim, Instant now) {
  if (spare_.size() >= kSpareShims) return dismiss(std::move(shim), now);
  spare_.push_back({std::move(shim), now + kSpareShimTime});
}

std::optional<ShimProcess> SpareShims::take(const std::string& directory, Instant now) {
  // The most recent one: its memory is the warmest, and the others' time may run out.
  while (!spare_.empty()) {
    ShimProcess shim = std::move(spare_.back().shim);
    spare_.pop_back();
    if (shim.path_room >= directory.size() && serve(shim.socket, directory)) return shim;
    dismiss(std::move(shim), now);  // numbers of jobs grow longer; or the shim was killed by somebody
  }
  return std::nullopt;
}

// It would end by itself when its connection is closed, but not while it is stopped; and it has nothing to lose.
void SpareShims::dismiss(ShimProcess shim, Instant now) {
  kill_process(shim.pidfd);
  ending_.push_back(std::move(shim.pidfd));
  pause_ = kFirstPause;
  look_at_ = now + pause_;
}

void SpareShims::pass_time(Instant now) {
  while (!spare_.empty() && spare_.front().until <= now) {
    dismiss(std::move(spare_.front().shim), now);
    spare_.pop_front();
  }
  if (now < look_at_) return;
  std::erase_if(ending_, has_ended);
  pause_ = std::min(pause_ * 2, kLastPause);
  look_at_ = ending_.empty() ? kNever : now + pause_;
}

Instant SpareShims::deadline() const { return spare_.empty() ? look_at_ : std::min(look_at_, spare_.front().until); }

}  // namespace dtrain::proc
