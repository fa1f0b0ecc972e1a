// One outbound connection: to one endpoint, on one lane.
//
// It is up while ZeroMQ accepts messages for it: with IMMEDIATE, a connection counts only once its handshake is done
// and until it is closed (3 ms after a kill -9). A few messages wait here for a short time until then.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/net/gate.h"
#include "agent/net/key_ring.h"
#include "agent/net/poller.h"
#include "agent/net/socket_events.h"
#include "agent/net/zmq_socket.h"
#include "common/base/time.h"

namespace dtrain::net {

inline constexpr std::size_t kWaitingMessages = 16;  // for a connection that is not up; a further message fails
inline constexpr Duration kWaitingTime = 3s;         // older messages are dropped: their answers would come too late
inline constexpr Duration kTryNextKey = 500ms;       // a link that is not up by then tries the next pair of the key file
// The same time with only one pair. After some failed handshakes ZeroMQ stops trying without a report.
inline constexpr Duration kStuckTime = 10s;
inline constexpr int kReconnectMinMs = 100;        // plus a random part of the same length for each link
inline constexpr int kReconnectMaxMs = 1000;       // the end of a cut is noticed soon
inline constexpr std::size_t kDealerPerTurn = 64;  // messages read from one link in one turn

struct DealerTarget {
  wire::Endpoint to;
  wire::Lane lane{};
  bool join = false;  // under the cluster key, only for Join and its answer
  bool anew = false;  // made for one message, besides the link to the same member
  auto operator<=>(const DealerTarget&) const = default;
};

// What all dealers of one PeerLinks share.
struct DealerWorld {
  const ZmqContext& context;
  Poller& poller;
  KeyRing& keys;
  Gate& gate;
};

class Dealer {
 public:
  // ErrorCode::limit: no descriptor is left.
  static Result<std::unique_ptr<Dealer>> open(const DealerWorld& world, std::uint64_t serial, const DealerTarget& target,
                                              const MemberId& member, std::size_t pair);
  ~Dealer();
  Dealer(const Dealer&) = delete;
  Dealer& operator=(const Dealer&) = delete;

  const DealerTarget& target() const { return target_; }
  std::uint64_t serial() const { return serial_; }
  std::size_t pair() const { return pair_; }
  void renumber_pair(std::size_t pair) { pair_ = pair; }  // the same pair, at another position in the file
  bool up() const { return up_; }
  MemberId member() const { return member_; }
  void expect(const MemberId& member) { member_ = member; }

  // Returns false if the queue is full; the message is lost.
  bool send(std::string header, std::string body);
  // Connects anew with that pair of the key file; waiting messages keep waiting. On failure no descriptor is left; try again.
  Status reopen(std::size_t pair);

  // Looks at the socket: sends what waited, reads what came, notices up and down. Returns true if there is more to do.
  bool examine(Instant now, std::vector<gossip::Input>& out);
  // Handles failed handshakes, on links to seeds.
  void watch(Instant now);
  // Sets the times of what happened since the last call, and drops what waited too long. Returns when to call again.
  Instant service(Instant now);

  Instant last_used() const { return last_used_; }
  // When it was opened again or lost, as of the last service().
  Instant opened_at() const { return opened_at_.value_or(Instant{}); }
  bool has_socket() const { return static_cast<bool>(socket_); }
  // True after each send(): the descriptor may stay silent although there is something to do.
  bool wants_examination() const;
  // Allows `ms` for messages queued in ZeroMQ when it is closed.
  void set_linger(int ms) { socket_.set(ZMQ_LINGER, ms); }

 private:
  struct Waiting {
    std::string header, body;
    std::optional<Instant> since;  // set by the next service()
  };
  Dealer(const DealerWorld& world, std::uint64_t serial, const DealerTarget& target, const MemberId& member);
  Status connect();
  void disconnect();
  ZmqSocket::Sent hand_over(const Waiting& message);
  void flush();

  const DealerWorld& world_;
  const std::uint64_t serial_;
  const DealerTarget target_;
  MemberId member_;
  std::size_t pair_ = 0;
  ZmqSocket socket_;
  std::uint64_t openings_ = 0;  // number of times that events_ was opened
  std::optional<SocketEvents> events_;
  bool up_ = false;
  bool used_ = true;
  Instant last_used_{};
  std::optional<Instant> opened_at_;
  std::deque<Waiting> waiting_;
};

}  // namespace dtrain::net
