#include "agent/net/zap.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "agent/net/ip_address.h"

namespace dtrain::net {
namespace {

constexpr std::string_view kVersion = "1.0";
constexpr const char* kEndpoint = "inproc://zeromq.zap.01";
constexpr const char* kUnknownKeyNext =
    "its key file differs from ours or it has not joined yet: compare `sha256sum` of both key files";
constexpr const char* kTooManyNext =
    "restart this agent when it suits: its tasks go on, and members that are long gone are forgotten";
constexpr const char* kNoKeyNext =
    "give it this cluster's key file (--key-file), and this agent too where it runs without";

}  // namespace

Result<Zap> Zap::open(const ZmqContext& context) {
  auto socket = ZmqSocket::open(context, ZMQ_ROUTER);
  if (!socket) return fail(socket.error());
  if (!socket->set(ZMQ_LINGER, 0) || !socket->bind(kEndpoint))
    return fail(ErrorCode::internal, "could not install the check of keys: " + zmq_cause());
  return Zap(std::move(*socket));
}

// Frames: peer, "", version, request id, domain, address, identity, mechanism, then the mechanism's
// credentials.
bool Zap::read(Question& question, bool& well_formed) {
  constexpr std::size_t kPeer = 0, kVersionAt = 2, kRequest = 3, kAddress = 5, kMechanism = 7,
                        kCredential = 8;
  well_formed = false;
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
  well_formed = version && (question.mechanism == "NULL" || (question.mechanism == "CURVE" && key));
  return true;
}

Zap::Verdict Zap::judge(const Question& question, KeyRing& keys) {
  if (question.mechanism == "NULL") {
    if (keys.plain() && is_loopback(question.address))
      return {Verdict::Kind::accept, std::string(kUserPlain), ""};
    return {Verdict::Kind::refuse, "", "no-key"};
  }
  bool more = false;
  const auto holder = keys.holder_of(question.key, question.address, more);
  if (more) unfinished_ = true;
  if (holder)
    return {Verdict::Kind::accept, holder->cluster ? std::string(kUserCluster) : holder->node.text(), ""};
  return {Verdict::Kind::wait, "", "unknown-key"};
}

void Zap::answer(const Question& question, const Verdict& verdict) {
  // 300 closes the connection without a word; after a 400 ZeroMQ's client would never try again, though it
  // may be known later.
  const bool accepted = verdict.kind == Verdict::Kind::accept;
  if (socket_.send(question.peer, true) != ZmqSocket::Sent::done) return;  // that connection is gone
  for (const std::string_view part : {std::string_view(), kVersion, std::string_view(question.request),
                                      std::string_view(accepted ? "200" : "300"),
                                      std::string_view(verdict.reason), std::string_view(verdict.user)})
    socket_.send(part, true);
  socket_.send("", false);  // no metadata
}

void Zap::refuse(Instant now, const Question& question, const char* reason, QuietLog& log) {
  ++refused_;
  answer(question, {Verdict::Kind::refuse, "", reason});
  log.warn(now, "net.refused", reason, question.address,
           question.mechanism == "NULL" ? kNoKeyNext : kUnknownKeyNext);
}

bool Zap::serve(Instant now, KeyRing& keys, QuietLog& log) {
  keys.begin_turn();
  if (keys.overflowed() && !std::exchange(told_overflow_, true))
    log.warn(now, "net.too-many-members",
             std::to_string(kKnownMembers) + " were seen: further ones cannot connect here", "",
             kTooManyNext);
  if (unfinished_) retry(keys);
  while (!parked_.empty() && parked_.front().until <= now) {
    refuse(now, parked_.front(), "unknown-key", log);
    parked_.erase(parked_.begin());
  }
  for (std::size_t i = 0; i < kZapPerTurn; ++i) {
    // Nobody is refused because it was not this one's turn: with the shelf full the rest waits in the socket.
    if (unfinished_ && parked_.size() >= kParkedHandshakes) return true;
    Question question;
    bool well_formed = false;
    if (!read(question, well_formed)) return false;
    if (!well_formed) {
      refuse(now, question, "malformed", log);
      continue;
    }
    const Verdict verdict = judge(question, keys);
    if (verdict.kind == Verdict::Kind::accept) {
      answer(question, verdict);
    } else if (verdict.kind == Verdict::Kind::wait && parked_.size() < kParkedHandshakes) {
      question.until = now + kParkTime;
      parked_.push_back(std::move(question));
    } else {
      refuse(now, question, verdict.reason, log);
    }
  }
  return true;
}

void Zap::retry(KeyRing& keys) {
  unfinished_ = false;
  std::erase_if(parked_, [&](const Question& question) {
    const Verdict verdict = judge(question, keys);
    if (verdict.kind == Verdict::Kind::accept) answer(question, verdict);
    return verdict.kind == Verdict::Kind::accept;
  });
}

}  // namespace dtrain::net
