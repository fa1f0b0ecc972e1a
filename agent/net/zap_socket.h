// The wire of ZeroMQ's authentication protocol (ZAP, RFC 27): questions and their answers. Who is let in decide others.
#pragma once

#include <string>
#include <string_view>

#include "agent/net/cluster_keys.h"
#include "agent/net/zmq_socket.h"

namespace dtrain::net {

// The connection is; it is closed without a word, and ZeroMQ's client tries again; its client is told, and does not try again.
inline constexpr std::string_view kZapAccept = "200", kZapClose = "300", kZapTell = "400";

struct ZapQuestion {
  std::string peer, request, address, mechanism;
  CurveKey key{};            // of the client; with mechanism CURVE
  bool well_formed = false;  // NULL, or CURVE with a key
};

class ZapSocket {
 public:
  // One in each context.
  static Result<ZapSocket> open(const ZmqContext& context);
  int fd() const { return socket_.fd(); }
  // False: nobody asks.
  bool read(ZapQuestion& question);
  // `user`: what the connection's messages carry as User-Id.
  void answer(const ZapQuestion& question, std::string_view status, std::string_view reason, std::string_view user);

 private:
  explicit ZapSocket(ZmqSocket socket) : socket_(std::move(socket)) {}
  ZmqSocket socket_;
};

}  // namespace dtrain::net
