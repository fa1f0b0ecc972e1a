// The checks that every message passes: who sent it, is it for this node, is it well-formed. Its body is not looked at before.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "agent/net/quiet_log.h"
#include "agent/net/zmq_socket.h"
#include "common/gossip/membership.h"
#include "common/node/event.h"

namespace dtrain::net {

class Gate {
 public:
  Gate(const MemberId& self, Log& log) : self_(self), quiet_(log) {}

  void set_cluster(const MemberId& cluster) { cluster_ = cluster; }
  QuietLog& quiet() { return quiet_; }

  // Reads one message [header][body] whose first frame is next in `socket`, and appends Received or Dropped to `out`,
  // or keeps it for take_others(). Returns false if there was none.
  struct Side {
    enum class Kind : unsigned char { inbound, outbound } kind{};
    wire::LinkAuth auth;  // outbound: the identity expected at the other end
    gossip::ReplyPath reply = 0;
  };
  bool pass(Instant now, ZmqSocket& socket, const Side& side, std::vector<gossip::Input>& out);
  // LogReceived, FormationReceived and RelayReceived since the last call.
  std::vector<node::Event> take_others() { return std::exchange(others_, {}); }
  bool any_others() const { return !others_.empty(); }
  std::uint64_t passed() const { return passed_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  void drop(Instant now, wire::Drop why, const std::string& from, std::vector<gossip::Input>& out);
  const MemberId self_;
  MemberId cluster_;
  QuietLog quiet_;
  std::vector<node::Event> others_;
  std::uint64_t passed_ = 0, dropped_ = 0;
};

}  // namespace dtrain::net
