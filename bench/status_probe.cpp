// status_probe SOCKET INTERVAL_MS: asks an agent for its status over one connection of its own, at fixed times whether or not
// the last question was answered, until its stdin ends. Prints one line per answer: microseconds from the time when the
// question was due to its answer, so that a stalled agent shows in every question that it held up. On a host whose
// processors are all in use it is the agent that is measured, not this program's own wait for one: where it may, it runs
// before others. Exit 1: a question was not answered properly.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>

#include "bench/control_client.h"
#include "common/wire/control.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace dtrain;
using bench::connect_to;
using bench::send_all;

class Probe {
 public:
  explicit Probe(int fd, std::chrono::milliseconds interval) : fd_(fd), interval_(interval) {}

  // Returns false if an answer was no status, or is missing.
  bool run() {
    Clock::time_point next = Clock::now();
    bool asking = true;
    while (asking || !due_.empty()) {
      const auto left = std::max<Clock::duration>(asking ? next - Clock::now() : kLastAnswer, Clock::duration::zero());
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
      const timespec limit{seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
      pollfd ready[2] = {{fd_, POLLIN, 0}, {asking ? STDIN_FILENO : -1, POLLIN, 0}};
      if (ppoll(ready, 2, &limit, nullptr) == 0 && !asking) return false;
      if (ready[0].revents != 0 && !take_answers()) return false;
      if (ready[1].revents != 0) asking = false;
      if (!asking || Clock::now() < next) continue;
      due_.push_back(next);
      if (!send_all(fd_, wire::frame(wire::make_message(wire::MessageType::query_status, ++asked_, wire::JobName{})))) return false;
      next += interval_;
    }
    return true;
  }

 private:
  static constexpr std::chrono::seconds kLastAnswer{10};

  bool take_answers() {
    char buffer[16 << 10];
    const ssize_t got = recv(fd_, buffer, sizeof buffer, 0);
    if (got <= 0) return false;
    const auto now = Clock::now();
    replies_.feed(std::string_view(buffer, static_cast<std::size_t>(got)));
    while (true) {
      auto message = replies_.next();
      if (!message) return false;
      if (!message->has_value()) return true;
      const std::uint64_t expected = asked_ - due_.size() + 1;
      if (due_.empty() || (*message)->type != wire::MessageType::status || (*message)->request != expected) return false;
      std::printf("%lld\n", static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(now - due_.front()).count()));
      due_.pop_front();
    }
  }

  const int fd_;
  const std::chrono::milliseconds interval_;
  wire::Deframer replies_;
  std::deque<Clock::time_point> due_;  // when the questions without an answer were due
  std::uint64_t asked_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const int interval_ms = argc == 3 ? bench::positive(argv[2]) : 0;
  if (interval_ms == 0) {
    std::fputs("usage: status_probe SOCKET INTERVAL_MS\n", stderr);
    return 64;
  }
  const int fd = connect_to(argv[1]);
  if (fd < 0) {
    std::perror("status_probe: could not connect");
    return 1;
  }
  (void)setpriority(PRIO_PROCESS, 0, -15);
  if (!Probe(fd, std::chrono::milliseconds(interval_ms)).run()) {
    std::fputs("status_probe: the agent did not answer with its status\n", stderr);
    return 1;
  }
  return 0;
}
