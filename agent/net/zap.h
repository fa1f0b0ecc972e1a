// ZeroMQ's authentication protocol (ZAP, RFC 27): says of every new inbound connection whether it may be, and
// as whom.
//
// Always installed: without it ZeroMQ accepts any client key. A node key that is not known yet is parked for
// a moment: gossip about a newcomer and the newcomer's own connection travel side by side, and either may be
// first.
#pragma once

#include <string>
#include <vector>

#include "agent/net/key_ring.h"
#include "agent/net/quiet_log.h"
#include "agent/net/zap_socket.h"
#include "common/base/time.h"

namespace dtrain::net {

inline constexpr std::size_t kZapPerTurn = 128;       // questions answered in one turn
inline constexpr std::size_t kParkedHandshakes = 64;  // further unknown keys are refused at once
inline constexpr Duration kParkTime = 1s;  // then an unknown key is refused; below the handshake's own limit

inline constexpr const char* kZapDomain = "dtrain";
inline constexpr std::string_view kUserCluster = "cluster";  // user id of a link under the cluster key
inline constexpr std::string_view kUserPlain = "plain";      // without any key, from loopback

class Zap {
 public:
  static Result<Zap> open(const ZmqContext& context);
  int fd() const { return socket_.fd(); }

  // One turn, with as many keys derived as KeyRing allows to one. True: more is waiting.
  bool serve(Instant now, KeyRing& keys, QuietLog& log);
  // A member was made known: those parked are looked at again, with what the last turn left of its keys to
  // derive.
  void retry(KeyRing& keys);
  Instant deadline() const {
    return unfinished_ ? Instant{} : parked_.empty() ? kNever : parked_.front().until;
  }
  std::uint64_t refused() const { return refused_; }

 private:
  struct Parked : ZapQuestion {
    Instant until = kNever;
  };
  struct Verdict {
    enum class Kind : unsigned char { accept, wait, refuse } kind{};
    std::string user;
    const char* reason = "";
  };
  explicit Zap(ZapSocket socket) : socket_(std::move(socket)) {}
  Verdict judge(const ZapQuestion& question, KeyRing& keys);
  void answer(const ZapQuestion& question, const Verdict& verdict);
  void refuse(Instant now, const ZapQuestion& question, const char* reason, QuietLog& log);

  ZapSocket socket_;
  std::vector<Parked> parked_;  // oldest first
  bool unfinished_ = false;       // one of them waits for keys still to be derived
  bool told_overflow_ = false;
  std::uint64_t refused_ = 0;
};

}  // namespace dtrain::net
