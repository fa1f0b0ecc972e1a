// The messages of ZeroMQ's authentication protocol (ZAP, RFC 27): questions and answers. Its users decide who is let in.
#pragma once

#include <string>
#include <string_view>

#include "agent/net/cluster_keys.h"
#include "agent/net/zmq_socket.h"

namespace dtrain::net {

// The connection is accepted; it is closed without a reason, and the client's ZeroMQ tries again; the client is told,
// and does not try again.
inline constexpr std::string_view kZapAccept = "200", kZapClose = "300", kZapTell = "400";

struct ZapQuestion {
  std::string peer, request, address, mechanism;
  CurveKey key{};            // the client's, with mechanism CURVE
  bool well_formed = false;  // NULL, or CURVE with a key
};

class ZapSocket {
 public:
  // Each context may have one.
  static Result<ZapSocket> open(const ZmqContext& context);
  int fd() const { return socket_.fd(); }
  // Returns false if there is no question.
  bool read(ZapQuestion& question);
  // `user`: the User-Id of the connection's messages.
  void answer(const ZapQuestion& question, std::string_view status, std::string_view reason, std::string_view user);

 private:
  explicit ZapSocket(ZmqSocket socket) : socket_(std::move(socket)) {}
  ZmqSocket socket_;
};

}  // namespace dtrain::net
