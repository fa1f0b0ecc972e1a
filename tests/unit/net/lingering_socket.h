// A TCP connection whose last close waits for half a minute: it has SO_LINGER, unsent data, and a peer that does not read.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace dtrain::lab {

class LingeringSocket {
 public:
  LingeringSocket() {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener, 1), 0);
    EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    peer_ = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    EXPECT_GE(peer_, 0);
    ::close(listener);
    const linger wait{1, 30};
    EXPECT_EQ(::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
    const std::string data(64 << 10, 'x');
    while (::send(fd_, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
  }
  ~LingeringSocket() {
    ::close(peer_);  // a reset: nothing lingers any more
    if (fd_ >= 0) ::close(fd_);
  }
  LingeringSocket(const LingeringSocket&) = delete;
  LingeringSocket& operator=(const LingeringSocket&) = delete;

  // Passes it on together with `bytes`, and keeps no copy. 0 or errno.
  int pass(int socket, std::string bytes, int flags = 0) {
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd_);
    std::memcpy(CMSG_DATA(head), &fd_, sizeof fd_);
    if (::sendmsg(socket, &message, MSG_NOSIGNAL | flags) < 0) return errno;
    ::close(std::exchange(fd_, -1));
    return 0;
  }

  // The peer reads on. True: whoever had it has let go of it, which happens within some seconds.
  bool is_closed() {
    char chunk[64 << 10];
    for (;;) {
      pollfd wait{peer_, POLLIN, 0};
      if (::poll(&wait, 1, 10'000) != 1) return false;
      if (::recv(peer_, chunk, sizeof chunk, 0) <= 0) return true;
    }
  }

 private:
  int fd_ = -1, peer_ = -1;
};

}  // namespace dtrain::lab
