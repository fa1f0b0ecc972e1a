#include "agent/net/zap.h"

#include <algorithm>
#include <utility>

#include "agent/net/ip_address.h"

namespace dtrain::net {
namespace {

constexpr const char* kUnknownKeyNext = "its key file differs from ours or it has not joined yet: compare `sha256sum` of both key files";
constexpr const char* kTooManyNext = "restart this agent when it suits: its tasks go on, and members that are long gone are forgotten";
constexpr const char* kNoKeyNext = "give it this cluster's key file (--key-file), and this agent too where it runs without";

}  // namespace

Result<Zap> Zap::open(const ZmqContext& context) {
  auto socket = ZapSocket::open(context);
  if (!socket) return fail(socket.error());
  return Zap(std::move(*socket));
}

Zap::Verdict Zap::judge(const ZapQuestion& question, KeyRing& keys) {
  if (question.mechanism == "NULL") {
    if (keys.plain() && is_loopback(question.address)) return {Verdict::Kind::accept, std::string(kUserPlain), ""};
    return {Verdict::Kind::refuse, "", "no-key"};
  }
  bool more = false;
  const auto holder = keys.holder_of(question.key, question.address, more);
  if (more) unfinished_ = true;
  if (holder) return {Verdict::Kind::accept, holder->cluster ? std::string(kUserCluster) : holder->node.text(), ""};
  return {Verdict::Kind::wait, "", "unknown-key"};
}

void Zap::answer(const ZapQuestion& question, const Verdict& verdict) {
  // Status 300 closes the connection without a reason; after a 400 ZeroMQ's client would never try again, though its
  // key may become known.
  const bool accepted = verdict.kind == Verdict::Kind::accept;
  socket_.answer(question, accepted ? kZapAccept : kZapClose, verdict.reason, verdict.user);
}

void Zap::refuse(Instant now, const ZapQuestion& question, const char* reason, QuietLog& log) {
  ++refused_;
  answer(question, {Verdict::Kind::refuse, "", reason});
  log.warn(now, "net.refused", reason, question.address, question.mechanism == "NULL" ? kNoKeyNext : kUnknownKeyNext);
}

bool Zap::serve(Instant now, KeyRing& keys, QuietLog& log) {
  keys.begin_turn();
  if (keys.overflowed() && !std::exchange(told_overflow_, true))
    log.warn(now, "net.too-many-members", std::to_string(kKnownMembers) + " were seen: further ones cannot connect here", "", kTooManyNext);
  if (unfinished_) retry(keys);
  while (!parked_.empty() && parked_.front().until <= now) {
    refuse(now, parked_.front(), "unknown-key", log);
    parked_.erase(parked_.begin());
  }
  for (std::size_t i = 0; i < kZapPerTurn; ++i) {
    // No key is refused because it was not its turn: when the parking is full, further ones wait in the socket.
    if (unfinished_ && parked_.size() >= kParkedHandshakes) return true;
    Parked question;
    if (!socket_.read(question)) return false;
    if (!question.well_formed) {
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
  std::erase_if(parked_, [&](const Parked& question) {
    const Verdict verdict = judge(question, keys);
    if (verdict.kind == Verdict::Kind::accept) answer(question, verdict);
    return verdict.kind == Verdict::Kind::accept;
  });
}

}  // namespace dtrain::net
