// ZeroMQ's context, sockets and frames with ownership. Uses the C interface: failures are values, and no exception
// crosses a call.
//
// A socket's descriptor is edge-like: it signals a change once, until events() is read. So events() must be read
// after every use of a socket (send, receive, options), or a wake-up may be lost.
#pragma once

#include <zmq.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace dtrain::net {

class ZmqContext {
 public:
  static Result<ZmqContext> open(int io_threads, int max_sockets);
  ZmqContext(ZmqContext&& other) noexcept;
  ZmqContext& operator=(ZmqContext&&) = delete;
  ~ZmqContext();  // every socket must be closed before; waits for their LINGER
  void* get() const { return context_; }

 private:
  explicit ZmqContext(void* context) : context_(context) {}
  void* context_;
};

class Frame {
 public:
  Frame() { zmq_msg_init(&message_); }
  ~Frame() { zmq_msg_close(&message_); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  std::string_view bytes() const;
  bool more() const { return zmq_msg_more(&message_) != 0; }
  // Of the connection that the frame came by ("User-Id", "Peer-Address"); "" when there is none.
  std::string_view property(const char* name) const;
  zmq_msg_t* get() { return &message_; }

 private:
  mutable zmq_msg_t message_;
};

class ZmqSocket {
 public:
  ZmqSocket() = default;
  // ErrorCode::limit: no descriptors or no sockets are left.
  static Result<ZmqSocket> open(const ZmqContext& context, int type);
  ZmqSocket(ZmqSocket&& other) noexcept;
  ZmqSocket& operator=(ZmqSocket&& other) noexcept;
  ~ZmqSocket() { close(); }

  explicit operator bool() const { return socket_ != nullptr; }
  void close();
  void* get() const { return socket_; }
  int fd() const;

  bool set(int option, int value);
  bool set(int option, std::int64_t value);
  bool set(int option, std::string_view value);
  bool bind(const std::string& endpoint) { return zmq_bind(socket_, endpoint.c_str()) == 0; }
  bool unbind(const std::string& endpoint) { return zmq_unbind(socket_, endpoint.c_str()) == 0; }
  bool connect(const std::string& endpoint) { return zmq_connect(socket_, endpoint.c_str()) == 0; }

  // The present ZMQ_POLLIN | ZMQ_POLLOUT.
  int events() const;
  // Never waits. `busy`: no connection or a full queue; `unreachable`: a ROUTER knows no peer of that name.
  enum class Sent : unsigned char { done, busy, unreachable, failed };
  Sent send(std::string_view bytes, bool more);
  // Returns false if there is none.
  bool receive(Frame& frame);

 private:
  explicit ZmqSocket(void* socket) : socket_(socket) {}
  void* socket_ = nullptr;
};

// "could not <what>: <cause of errno>" in ZeroMQ's words.
std::string zmq_cause();

}  // namespace dtrain::net
