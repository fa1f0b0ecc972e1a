#include "agent/net/zap_socket.h"

#include <cstring>
#include <utility>

namespace dtrain::net {
namespace {

constexpr std::string_view kVersion = "1.0";
constexpr const char* kEndpoint = "inproc://zeromq.zap.01";

}  // namespace

Result<ZapSocket> ZapSocket::open(const ZmqContext& context) {
  auto socket = ZmqSocket::open(context, ZMQ_ROUTER);
  if (!socket) return fail(socket.error());
  if (!socket->set(ZMQ_LINGER, 0) || !socket->bind(kEndpoint))
    return fail(ErrorCode::internal, "could not install the check of keys: " + zmq_cause());
  return ZapSocket(std::move(*socket));
}

// Frames: peer, "", version, request id, domain, address, identity, mechanism, then the mechanism's
// credentials.
bool ZapSocket::read(ZapQuestion& question) {
  constexpr std::size_t kPeer = 0, kVersionAt = 2, kRequest = 3, kAddress = 5, kMechanism = 7, kCredential = 8;
  question = {};
  std::size_t count = 0;
  bool version = false, key = false;
  for (bool more = true; more; ++count) {
    Frame frame;
    if (!socket_.receive(frame)) return count > 0;
    const std::string_view bytes = frame.bytes();
    if (count == kPeer) question.peer = bytes;
    if (count == kVersionAt) version = bytes == kVersion;
    if (count == kRequest) question.request = bytes;
    if (count == kAddress) question.address = bytes;
    if (count == kMechanism) question.mechanism = bytes;
    if (count == kCredential && bytes.size() == question.key.size()) {
      std::memcpy(question.key.data(), bytes.data(), bytes.size());
      key = true;
    }
    more = frame.more();
  }
  question.well_formed = version && (question.mechanism == "NULL" || (question.mechanism == "CURVE" && key));
  return true;
}

void ZapSocket::answer(const ZapQuestion& question, std::string_view status, std::string_view reason, std::string_view user) {
  if (socket_.send(question.peer, true) != ZmqSocket::Sent::done) return;  // that connection is gone
  for (const std::string_view part : {std::string_view(), kVersion, std::string_view(question.request), status, reason, user})
    socket_.send(part, true);
  socket_.send("", false);  // no metadata
}

}  // namespace dtrain::net
