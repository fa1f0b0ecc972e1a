#include "tests/unit/dtrainctl/fake_agent.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <sstream>

#include "agent/dtrainctl/cli.h"
#include "common/base/check.h"

namespace dtrain::ctl {

FakeAgent::FakeAgent(std::string path, Handler handler) : path_(std::move(path)), handler_(std::move(handler)) { start(); }

void FakeAgent::start() {
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  CHECK(path_.size() < sizeof name.sun_path);
  std::memcpy(name.sun_path, path_.c_str(), path_.size() + 1);
  ::unlink(path_.c_str());
  CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0);
  CHECK(::listen(listener_, 16) == 0);
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { serve(); });
}

void FakeAgent::stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  CHECK(::write(stop_fd_, &one, sizeof one) == sizeof one);
  thread_.join();
  ::close(listener_);
  ::close(stop_fd_);
  ::unlink(path_.c_str());
}

std::vector<wire::Message> FakeAgent::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

void FakeAgent::serve() {
  std::map<int, wire::Deframer> clients;
  while (true) {
    std::vector<pollfd> polls{{stop_fd_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const auto& [fd, deframer] : clients) polls.push_back({fd, POLLIN, 0});
    ::poll(polls.data(), polls.size(), -1);
    if (polls[0].revents != 0) break;
    if (polls[1].revents != 0) clients[::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)];
    for (std::size_t i = 2; i < polls.size(); ++i) {
      if (polls[i].revents == 0) continue;
      const int fd = polls[i].fd;
      char buffer[65536];
      const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
      bool close = n <= 0;
      if (n > 0) clients[fd].feed({buffer, static_cast<std::size_t>(n)});
      while (!close) {
        auto request = clients[fd].next();
        if (!request || !*request) break;
        {
          std::lock_guard lock(mutex_);
          requests_.push_back(**request);
        }
        const Answer answer = handler_(**request);
        for (const wire::Message& message : answer.messages) {
          const std::string bytes = wire::frame(message);
          for (std::size_t sent = 0; sent < bytes.size();) {
            const ssize_t m = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
            if (m <= 0) break;
            sent += static_cast<std::size_t>(m);
          }
        }
        close = answer.close;
      }
      if (close) {
        ::close(fd);
        clients.erase(fd);
      }
    }
  }
  for (const auto& [fd, deframer] : clients) ::close(fd);
}

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "dtrainctl-XXXXXX").string();
  CHECK(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Ran run_ctl(const std::vector<std::string>& args) {
  std::ostringstream out, err;
  Io io{out, err, -1, false, false, false, 0};
  const int code = run_program(args, io);
  return {code, out.str(), err.str()};
}

}  // namespace dtrain::ctl
