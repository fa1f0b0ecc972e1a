// Relays: the bytes of requests that are answered at another host, or asked from one (common/node/relays.h decides which).
// Streams between agents are relay::StreamEnd; what they carry are frames of the control protocol. Answers go to the client
// while its connection has room; else they wait here, a window of each stream, and then at the host that sends them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/time.h"
#include "common/node/effect.h"
#include "common/relay/stream_end.h"
#include "common/wire/control.h"

namespace dtrain::daemon {

inline constexpr std::size_t kRelayOutputBytes = 512 << 10;  // unacknowledged answers of one stream; then its log or exec waits
inline constexpr std::size_t kRelayInputBytes = 1 << 20;     // unacknowledged input of one exec; then its client is not read on
inline constexpr std::size_t kRelayMostBytes = 8 << 20;      // of either, whatever happens: the stream is closed
inline constexpr std::size_t kRelayRequestBytes = 2 << 20;   // of what was read of a stream and is no whole message yet: of
inline constexpr std::size_t kRelayAnswerBytes = 512 << 10;  // requests, of answers; beyond, the stream is closed
inline constexpr std::size_t kRelayMessageRoom = 128 << 10;  // that a client's connection must have before it is sent one more

// What lends Relays the rest of the agent.
class RelayWorld {
 public:
  virtual ~RelayWorld() = default;
  virtual void to_peer(const node::RelayPeer& peer, const wire::RelayMessage& message) = 0;
  virtual void tell(node::Event event) = 0;
  // ---- a client's connection
  virtual std::size_t client_room(node::ConnectionId client) = 0;
  virtual void to_client(node::ConnectionId client, const wire::Message& message) = 0;
  virtual void hold_client(node::ConnectionId client, bool hold) = 0;  // what it sends is not read meanwhile
  // ---- a connection of ours: relayed, or a part at this host
  virtual void on_relayed(node::ConnectionId connection, wire::Message message) = 0;
  virtual void on_relayed_closed(node::ConnectionId connection) = 0;
  virtual void on_room(node::ConnectionId connection) = 0;  // its streams may send again
};

class Relays {
 public:
  explicit Relays(RelayWorld& world) : world_(world) {}

  // ---- what Node wants
  void open(Instant now, node::OpenRelay effect);
  void close(node::ConnectionId part_or_relayed);
  void accept(Instant now, const node::AcceptRelay& effect);

  // ---- what the world says
  // False: of a stream that is not known here, which is Node's.
  bool received(Instant now, const node::RelayReceived& e);
  // For the exec that this input belongs to. False: none of ours.
  bool input(node::ConnectionId client, wire::ExecInput input);
  void wake(node::ConnectionId client);  // it has room again

  // ---- the outlet of parts and relayed connections
  std::size_t room(node::ConnectionId connection) const;
  void send(node::ConnectionId connection, wire::Message message);

  Instant deadline() const;
  void dispatch(Instant now);
  std::size_t size() const { return streams_.size(); }

 private:
  struct Stream {
    node::ConnectionId id = 0;           // a part, or relayed
    node::ConnectionId client = 0;       // of a part
    std::uint64_t request = 0;           // likewise
    bool whole = false;                  // likewise
    std::optional<node::RelayPeer> peer; // none: a part at this host
    std::unique_ptr<relay::StreamEnd> end;  // likewise
    wire::Deframer frames;               // of what was read of it
    std::optional<wire::Message> held;   // for a client without room
    bool full = false;                   // room() was too little: on_room() is owed
    bool holds_client = false;
    bool unread = false;                 // kRelayMostBytes were passed
  };
  using Address = std::tuple<MemberId, std::uint64_t, bool>;  // peer, number, whether we opened it
  using Streams = std::map<node::ConnectionId, std::unique_ptr<Stream>>;

  Address address_of(const Stream& s) const { return {s.peer->member, s.end->stream(), s.end->opener()}; }
  void add(std::unique_ptr<Stream> stream);
  void forget(Stream& s);
  void say_closed(const Stream& s, const wire::RelayClose& why);
  void lose(Stream& s, const Error& cause, bool say);
  void write(Stream& s, const wire::Message& message);
  bool read(Stream& s);                            // false: the stream is gone; so
  bool answer(Stream& s, wire::Message message);   // with these two
  void serve(Instant now, Stream& s);
  Stream* find(node::ConnectionId id) const;

  RelayWorld& world_;
  Streams streams_;
  std::map<Address, Stream*> by_address_;
  std::set<std::pair<node::ConnectionId, node::ConnectionId>> of_client_;  // client, part
  std::set<node::ConnectionId> touched_;  // to be served in this turn
  std::set<std::pair<Instant, node::ConnectionId>> timers_;
  std::map<node::ConnectionId, Instant> timer_of_;
};

}  // namespace dtrain::daemon
