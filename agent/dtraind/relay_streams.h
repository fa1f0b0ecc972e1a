// RelayStreams carry the bytes of requests that are answered at another host, or asked from one (common/node/relays.h
// decides which). Streams between agents are relay::StreamEnd and carry frames of the control protocol. Answers go to
// the client while its connection has room; otherwise they wait here, up to a window for each stream, and beyond that
// at the sending host.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "agent/dtraind/sinks.h"
#include "common/base/time.h"
#include "common/node/effect.h"
#include "common/relay/stream_end.h"
#include "common/wire/control.h"

namespace dtrain::daemon {

inline constexpr std::size_t kRelayOutputBytes = 512 << 10;  // unacknowledged answers of one stream; beyond, its log or exec waits
inline constexpr std::size_t kRelayInputBytes = 1 << 20;     // unacknowledged input of one exec; beyond, its client is not read
inline constexpr std::size_t kRelayMostBytes = 8 << 20;      // of either, in any case: the stream is closed
inline constexpr std::size_t kRelayRequestBytes = 2 << 20;   // bytes of an unfinished message of a stream: of
inline constexpr std::size_t kRelayAnswerBytes = 512 << 10;  // requests, of answers; beyond, the stream is closed
// room that a client's connection must have before it is sent another message
inline constexpr std::size_t kRelayMessageRoom = 128 << 10;

// What RelayStreams needs of the rest of the agent.
class RelayWorld {
 public:
  virtual ~RelayWorld() = default;
  virtual void to_peer(const node::RelayPeer& peer, const wire::RelayMessage& message) = 0;
  virtual void tell(node::Event event) = 0;
  // ---- a connection of this class: relayed, or a part at this host
  virtual void on_relayed(node::ConnectionId connection, wire::Message message) = 0;
  virtual void on_relayed_closed(node::ConnectionId connection) = 0;
  virtual void on_room(node::ConnectionId connection) = 0;  // the connection's streams may send again
};

class RelayStreams final : public Sink {
 public:
  // `own`: gets the answers on connections of this node's own.
  RelayStreams(RelayWorld& world, Sinks& sinks, Sink& own) : world_(world), sinks_(sinks), own_(own) {}

  // ---- called for Node's effects
  void open(Instant now, node::OpenRelay effect);
  void close(node::ConnectionId part_or_relayed) override;
  void accept(Instant now, const node::AcceptRelay& effect);

  // ---- called for what arrives
  //
  // Returns false if the stream is not known here; the message then goes to Node.
  bool received(Instant now, const node::RelayReceived& e);
  // Input for an exec. Returns false if no stream here has that exec.
  bool input(node::ConnectionId client, wire::ExecInput input);
  void wake(node::ConnectionId client);  // the client's connection has room again

  // ---- the sink of parts and relayed connections
  std::size_t room(node::ConnectionId connection) override;
  void send(node::ConnectionId connection, const wire::Message& message) override;

  Instant deadline() const;
  void dispatch(Instant now);
  std::size_t size() const { return streams_.size(); }

 private:
  struct Stream {
    node::ConnectionId id = 0;              // a part, or relayed
    node::ConnectionId client = 0;          // of a part only: whose answers they are
    bool own = false;                       // of a part only: that is no client's connection, but this node's own
    std::uint64_t request = 0;              // of a part only
    bool whole = false;                     // of a part only
    std::optional<node::RelayPeer> peer;    // unset: a part at this host
    std::unique_ptr<relay::StreamEnd> end;  // null: a part at this host
    wire::Deframer frames;                  // assembles what was read of the stream
    std::optional<wire::Message> held;      // waits for room at the client
    bool full = false;                      // room() was too little: on_room() must follow
    bool holds_client = false;
    bool unread = false;  // kRelayMostBytes was exceeded
    bool relayed() const { return client == 0; }
  };
  using Address = std::tuple<MemberId, std::uint64_t, bool>;  // peer, number, whether this agent opened it
  using Streams = std::map<node::ConnectionId, std::unique_ptr<Stream>>;

  Address address_of(const Stream& s) const { return {s.peer->member, s.end->stream(), s.end->opener()}; }
  void add(std::unique_ptr<Stream> stream);
  void forget(Stream& s);
  void send_closed(const Stream& s, const wire::RelayClose& why);
  void lose(Stream& s, const Error& cause, bool say);
  void write(Stream& s, const wire::Message& message);
  bool read(Stream& s);                           // false: the stream is gone; likewise
  bool answer(Stream& s, wire::Message message);  // for answer() and read()
  void serve(Instant now, Stream& s);
  Stream* find(node::ConnectionId id) const;

  RelayWorld& world_;
  Sinks& sinks_;
  Sink& own_;
  Streams streams_;
  std::map<Address, Stream*> by_address_;
  std::set<std::pair<node::ConnectionId, node::ConnectionId>> of_client_;  // client, part
  std::set<node::ConnectionId> touched_;                                   // streams to be served in this turn
  std::set<std::pair<Instant, node::ConnectionId>> timers_;
  std::map<node::ConnectionId, Instant> timer_of_;
};

}  // namespace dtrain::daemon
