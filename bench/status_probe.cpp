// status_probe SOCKET INTERVAL_MS: asks an agent for its status over one connection of its own, at fixed times, until its
// stdin ends. Prints one line per answer: microseconds from the time when the question was due to its answer, so that a
// stalled agent shows in every question that it held up. Exit 1: a question was not answered properly.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "common/wire/control.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace dtrain;

int connect_to(std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return -1;
  return fd;
}

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool ask(int fd, wire::Deframer& replies, std::uint64_t number) {
  if (!send_all(fd, wire::frame(wire::make_message(wire::MessageType::query_status, number, wire::JobName{})))) return false;
  while (true) {
    auto message = replies.next();
    if (!message) return false;
    if (message->has_value()) return (*message)->type == wire::MessageType::status && (*message)->request == number;
    char buffer[16 << 10];
    const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0) return false;
    replies.feed(std::string_view(buffer, static_cast<std::size_t>(got)));
  }
}

// Whether stdin ended before `due`.
bool stopped_before(Clock::time_point due) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(due - Clock::now()).count();
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, left > 0 ? static_cast<int>(left) : 0) > 0) return true;
  std::this_thread::sleep_until(due);  // poll counts in whole milliseconds
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  int interval_ms = 0;
  if (argc == 3) std::from_chars(argv[2], argv[2] + std::strlen(argv[2]), interval_ms);
  if (interval_ms <= 0) {
    std::fputs("usage: status_probe SOCKET INTERVAL_MS\n", stderr);
    return 64;
  }
  const int fd = connect_to(argv[1]);
  if (fd < 0) {
    std::perror("status_probe: could not connect");
    return 1;
  }
  wire::Deframer replies;
  auto due = Clock::now();
  for (std::uint64_t number = 1; !stopped_before(due); ++number) {
    if (!ask(fd, replies, number)) {
      std::fputs("status_probe: the agent did not answer with its status\n", stderr);
      return 1;
    }
    std::printf("%lld\n", static_cast<long long>(
                              std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - due).count()));
    due += std::chrono::milliseconds(interval_ms);
  }
  return 0;
}
