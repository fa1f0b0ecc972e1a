#include "agent/net/zmq_socket.h"

#include <errno.h>

#include <utility>

namespace dtrain::net {

std::string zmq_cause() { return zmq_strerror(zmq_errno()); }

Result<ZmqContext> ZmqContext::open(int io_threads, int max_sockets) {
  void* const context = zmq_ctx_new();
  if (context == nullptr) return fail(ErrorCode::io, "could not open network: " + zmq_cause(), "free descriptors or memory");
  ZmqContext owner(context);
  if (zmq_ctx_set(context, ZMQ_IO_THREADS, io_threads) != 0 || zmq_ctx_set(context, ZMQ_MAX_SOCKETS, max_sockets) != 0 ||
      zmq_ctx_set(context, ZMQ_BLOCKY, 0) != 0)
    return fail(ErrorCode::internal, "could not set up network: " + zmq_cause());
  return owner;
}

ZmqContext::ZmqContext(ZmqContext&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}

ZmqContext::~ZmqContext() {
  if (context_ == nullptr) return;
  while (zmq_ctx_term(context_) != 0 && errno == EINTR) continue;
}

std::string_view Frame::bytes() const { return {static_cast<const char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)}; }

std::string_view Frame::property(const char* name) const {
  const char* const value = zmq_msg_gets(&message_, name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

Result<ZmqSocket> ZmqSocket::open(const ZmqContext& context, int type) {
  void* const socket = zmq_socket(context.get(), type);
  if (socket != nullptr) return ZmqSocket(socket);
  const bool exhausted = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
  return fail(exhausted ? ErrorCode::limit : ErrorCode::io, "could not open socket: " + zmq_cause(),
              exhausted ? "raise LimitNOFILE of the agent" : "");
}

ZmqSocket::ZmqSocket(ZmqSocket&& other) noexcept : socket_(std::exchange(other.socket_, nullptr)) {}

ZmqSocket& ZmqSocket::operator=(ZmqSocket&& other) noexcept {
  if (this != &other) {
    close();
    socket_ = std::exchange(other.socket_, nullptr);
  }
  return *this;
}

void ZmqSocket::close() {
  if (socket_ != nullptr) zmq_close(std::exchange(socket_, nullptr));
}

int ZmqSocket::fd() const {
  int fd = -1;
  std::size_t size = sizeof fd;
  return zmq_getsockopt(socket_, ZMQ_FD, &fd, &size) == 0 ? fd : -1;
}

bool ZmqSocket::set(int option, int value) { return zmq_setsockopt(socket_, option, &value, sizeof value) == 0; }

bool ZmqSocket::set(int option, std::int64_t value) { return zmq_setsockopt(socket_, option, &value, sizeof value) == 0; }

bool ZmqSocket::set(int option, std::string_view value) { return zmq_setsockopt(socket_, option, value.data(), value.size()) == 0; }

int ZmqSocket::events() const {
  int events = 0;
  std::size_t size = sizeof events;
  while (zmq_getsockopt(socket_, ZMQ_EVENTS, &events, &size) != 0)
    if (errno != EINTR) return 0;
  return events;
}

ZmqSocket::Sent ZmqSocket::send(std::string_view bytes, bool more) {
  const int flags = ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0);
  for (;;) {
    if (zmq_send(socket_, bytes.data(), bytes.size(), flags) >= 0) return Sent::done;
    if (errno == EAGAIN) return Sent::busy;
    if (errno == EHOSTUNREACH) return Sent::unreachable;
    if (errno != EINTR) return Sent::failed;
  }
}

bool ZmqSocket::receive(Frame& frame) {
  for (;;) {
    if (zmq_msg_recv(frame.get(), socket_, ZMQ_DONTWAIT) >= 0) return true;
    if (errno != EINTR) return false;
  }
}

}  // namespace dtrain::net
