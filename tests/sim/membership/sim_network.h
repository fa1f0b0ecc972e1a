// The network between simulated agents, as agent/net and the kernels under it show it: connections, one each
// way and lane, opened when something is sent, and those made for one message. TCP does not lose: a lost packet comes late (200 ms, then
// double, after 5.2 s the connection is cut) and holds up what follows on its connection. A killed process
// resets its connections and refuses new ones; a vanished host says nothing; a stopped process accepts in its
// kernel, answers nothing, and reads everything when it runs again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/gossip/membership.h"
#include "tests/sim/membership/cuts.h"
#include "tests/sim/membership/event_queue.h"
#include "tests/sim/slab.h"

namespace dtrain::sim::membership {

struct Message {
  wire::PeerHeader header;
  wire::GossipBody body;
  gossip::ReplyPath reply = 0;
  std::uint32_t from = 0;  // slot
  bool join_link = false;  // on a link that nobody in particular is expected at: Join and its answer only
};

// The processes, as the network sees them.
class NetworkUser {
 public:
  virtual ~NetworkUser() = default;
  virtual void received(std::uint32_t slot, Message&& message) = 0;
  virtual void happened(std::uint32_t slot, const gossip::Input& input) = 0;
};

std::string ip_text(std::uint32_t address);                // address 258: "10.0.1.2"
std::uint32_t address_of(const wire::Endpoint& endpoint);  // 0: none of ours

class SimNetwork {
 public:
  static constexpr std::uint16_t kPort = 7400;
  static constexpr std::uint32_t kNobody = 0xffffffff;

  SimNetwork(EventQueue& queue, Rng rng, NetworkUser& user) : queue_(queue), rng_(rng), user_(user) {}

  std::uint32_t add_host(std::uint32_t address);              // up, without a process; the slot
  void move_host(std::uint32_t slot, std::uint32_t address);  // only while it has no process
  void set_host_up(std::uint32_t slot, bool up) { ports_[slot].up = up; }
  void start_process(std::uint32_t slot);
  void end_process(std::uint32_t slot);  // its kernel, when up, says so to all peers
  void pause(std::uint32_t slot) { ports_[slot].paused = true; }
  void resume(std::uint32_t slot);  // delivers what came meanwhile

  void send(std::uint32_t slot, gossip::Send&& send);
  void keep(std::uint32_t slot, const gossip::KeepLinks& links);
  void check_gone(std::uint32_t slot, const wire::Endpoint& to);
  void tell(std::uint32_t slot, Duration after, gossip::Input input);  // to the process that runs there now

  void handle(const Event& event);  // message, input, connect, handshake, ...
  void advance(Instant now) { now_ = now; }

  Cuts& cuts() { return cuts_; }
  const Cuts& cuts() const { return cuts_; }
  void set_loss(std::uint32_t per_mille) { loss_ = per_mille; }
  std::uint32_t loss() const { return loss_; }
  void set_duplicates(std::uint32_t per_mille) { duplicates_ = per_mille; }
  bool up(std::uint32_t slot) const { return ports_[slot].up; }
  bool listening(std::uint32_t slot) const { return ports_[slot].listening; }
  bool paused(std::uint32_t slot) const { return ports_[slot].paused; }
  std::uint32_t process(std::uint32_t slot) const { return ports_[slot].process; }
  std::uint32_t address(std::uint32_t slot) const { return ports_[slot].address; }
  std::uint32_t slot_at(std::uint32_t address) const { return address < at_.size() ? at_[address] : kNobody; }
  std::size_t links(std::uint32_t slot) const { return ports_[slot].links.size(); }

 private:
  struct Stall {  // sent, not arrived: the kernel tries again
    Instant since{};
    std::uint32_t attempt = 0;
    std::vector<std::uint32_t> messages;
  };
  struct Pipe {               // one direction
    Instant last{};           // arrival of what was sent last
    bool unanswered = false;  // a check for missing answers waits
    std::unique_ptr<Stall> stall;
  };
  enum class State : std::uint8_t { connecting, up, waiting };
  struct Link {
    std::uint32_t key = 0;         // its peer's address and what it is for
    std::uint32_t connection = 0;  // counts attempts, of all links of the owner
    std::uint32_t peer = kNobody, peer_process = 0;
    State state = State::connecting;
    std::uint8_t tries = 0;
    Instant used{}, queued_since{};
    Pipe out, back;
    std::vector<std::uint32_t> queued;  // messages that wait for the handshake
  };
  struct Port {
    bool up = true, listening = false, paused = false;
    std::uint32_t process = 0, address = 0, connections = 0;
    std::vector<Link> links;             // by key
    std::vector<std::uint32_t> kept;     // keys, sorted
    std::vector<std::uint32_t> inbound;  // slots that have opened links to here; some may be closed
    std::size_t inbound_compact = 64;
    std::vector<Event> held;  // while paused
  };
  struct Told {
    gossip::Input input;
    std::uint32_t process = 0;
  };

  Link* find(std::uint32_t slot, std::uint32_t key);
  Link* find(std::uint32_t slot, std::uint32_t key, std::uint32_t connection);
  Link& open(std::uint32_t slot, std::uint32_t key);
  void close(std::uint32_t slot, Link& link);
  void close_idle(std::uint32_t slot);
  void transmit(std::uint32_t owner, Link& link, bool forward, std::uint32_t message);
  void arrive(std::uint32_t owner, Link& link, bool forward, std::uint32_t message);
  void lose(std::uint32_t slot, Link& link);
  void try_again(std::uint32_t slot, Link& link, Duration after);
  void on_connect(const Event& event);
  void on_handshake(const Event& event);
  void on_retransmit(const Event& event);
  void on_unanswered(const Event& event);
  void on_message(const Event& event);
  void drop_waiting(Link& link);
  void break_by_sender(std::uint32_t slot, Link& link, bool forward);
  bool cut(std::uint32_t from, std::uint32_t to) const { return !ports_[to].up || !ports_[from].up || cuts_.blocked(from, to); }
  bool lost() { return loss_ > 0 && rng_.chance(loss_, 1000); }
  Duration latency();
  // What retransmission adds to one packet; more than kGiveUp: the connection is cut.
  Duration late();

  EventQueue& queue_;
  Rng rng_;
  NetworkUser& user_;
  Instant now_{};
  Cuts cuts_;
  std::uint32_t loss_ = 0, duplicates_ = 0;
  std::vector<Port> ports_;
  std::vector<std::uint32_t> at_;  // slot by address
  Slab<Message> messages_;
  Slab<Told> told_;
};

}  // namespace dtrain::sim::membership
