// ZeroMQ's authentication protocol (ZAP, RFC 27): decides for every new inbound connection whether it is let in, and
// as whom.
//
// Always installed: without it ZeroMQ accepts any client key. An unknown node key is parked for a moment, because
// gossip about a newcomer and the newcomer's own connection travel side by side, and either may arrive first.
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
inline constexpr Duration kParkTime = 1s;             // then an unknown key is refused; shorter than the handshake's own limit

inline constexpr const char* kZapDomain = "dtrain";
inline constexpr std::string_view kUserCluster = "cluster";  // user id of a link under the cluster key
inline constexpr std::string_view kUserPlain = "plain";      // without any key, from loopback

class Zap {
 public:
  static Result<Zap> open(const ZmqContext& context);
  int fd() const { return socket_.fd(); }

  // Serves one turn, deriving as many keys as KeyRing allows. Returns true if there is more to do.
  bool serve(Instant now, KeyRing& keys, QuietLog& log);
  // To be called when a member became known: looks at parked handshakes again, deriving the keys that the last turn left over.
  void retry(KeyRing& keys);
  Instant deadline() const { return unfinished_ ? Instant{} : parked_.empty() ? kNever : parked_.front().until; }
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
  bool unfinished_ = false;     // one of them waits for keys that are yet to be derived
  bool told_overflow_ = false;
  std::uint64_t refused_ = 0;
};

}  // namespace dtrain::net
