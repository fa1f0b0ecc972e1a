// Those who connect without being agents: raw TCP, half handshakes, other keys, and insiders who send what
// they like.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <string>
#include <utility>
#include <vector>

#include "agent/net/cluster_keys.h"
#include "common/wire/gossip.h"

namespace dtrain::net::testing {

// A TCP connection that says `words` once it is up.
class RawConnection {
 public:
  // Has its descriptor and does not connect yet.
  RawConnection() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  explicit RawConnection(const wire::Endpoint& to, std::string words = "") : RawConnection() {
    words_ = std::move(words);
    connect(to);
  }
  void connect(const wire::Endpoint& to) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(to.port);
    ::inet_pton(AF_INET, to.ip.c_str(), &address.sin_addr);
    if (fd_ >= 0) ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  RawConnection(RawConnection&& other) noexcept : fd_(std::exchange(other.fd_, -1)), words_(std::move(other.words_)) {}
  RawConnection& operator=(RawConnection&&) = delete;
  ~RawConnection() {
    if (fd_ >= 0) ::close(fd_);
  }
  void speak() {
    if (fd_ >= 0 && !words_.empty() && ::send(fd_, words_.data(), words_.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0) words_.clear();
  }
  // True: the other side has closed it.
  bool closed() const {
    char byte = 0;
    const ssize_t n = ::recv(fd_, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOTCONN);
  }

 private:
  int fd_;
  std::string words_;
};

// A ZMTP 3.1 greeting for the mechanism, as ZeroMQ sends it.
inline std::string greeting(const std::string& mechanism) {
  std::string text("\xff\0\0\0\0\0\0\0\1\x7f\3\1", 12);
  text += mechanism;
  text.resize(64, '\0');
  return text;
}

// A DEALER with whatever keys, below all our checks on the sending side.
class LooseDealer {
 public:
  LooseDealer(const wire::Endpoint& to, const KeyPair& own, const CurveKey& server) : context_(zmq_ctx_new()) {
    socket_ = zmq_socket(context_, ZMQ_DEALER);
    const int linger = 0;
    zmq_setsockopt(socket_, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket_, ZMQ_CURVE_SERVERKEY, server.data(), server.size());
    zmq_setsockopt(socket_, ZMQ_CURVE_PUBLICKEY, own.public_key.data(), own.public_key.size());
    zmq_setsockopt(socket_, ZMQ_CURVE_SECRETKEY, own.secret_key.data(), own.secret_key.size());
    zmq_connect(socket_, ("tcp://" + to.text()).c_str());
  }
  LooseDealer(const LooseDealer&) = delete;
  LooseDealer& operator=(const LooseDealer&) = delete;
  ~LooseDealer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  bool send(const std::vector<std::string>& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i)
      if (zmq_send(socket_, frames[i].data(), frames[i].size(), ZMQ_DONTWAIT | (i + 1 < frames.size() ? ZMQ_SNDMORE : 0)) < 0) return false;
    return true;
  }

 private:
  void* context_;
  void* socket_;
};

}  // namespace dtrain::net::testing
