// Finds out whether a process still exists, by one bare connect: its kernel refuses at once when nobody listens.
// Nothing is sent; a connection that comes up is reset once the other side has sent its first bytes. A process that
// is being ended loses its connections before it stops listening: the kernel still accepts for it, and resets. Then
// it is tried again.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "agent/net/poller.h"
#include "agent/net/quiet_log.h"
#include "common/base/time.h"
#include "common/gossip/membership.h"

namespace dtrain::net {

inline constexpr Duration kGoneCheckTime = 500ms;        // without an answer by then: silent; without first bytes: accepts
inline constexpr int kGoneCheckTries = 5;                // connections that may end without bytes; then: accepts
inline constexpr std::size_t kGoneChecksWaiting = 1024;  // checks that wait for their turn; further ones are answered with `silent`

class GoneChecks {
 public:
  GoneChecks(Poller& poller, std::string source_ip) : poller_(poller), source_ip_(std::move(source_ip)) {}
  ~GoneChecks();
  GoneChecks(const GoneChecks&) = delete;
  GoneChecks& operator=(const GoneChecks&) = delete;

  // Begins with the next service().
  void ask(const wire::Endpoint& to);
  void examine(std::uint64_t serial, std::vector<gossip::Input>& out);
  void service(Instant now, QuietLog& log, std::vector<gossip::Input>& out);
  // `now` (Instant{}) while some wait that could begin.
  Instant deadline() const;

 private:
  struct Check {
    int fd = -1;
    wire::Endpoint to;
    Instant until{};
    int tries = 1;
    bool connected = false;
  };
  struct Begun {
    int fd = -1;  // -1: see `answer`
    gossip::GoneChecked::Answer answer{};
    std::string cause;  // set if this host is the cause
  };
  Begun connect(const wire::Endpoint& to, std::uint64_t serial);
  void hear(std::map<std::uint64_t, Check>::iterator check, std::vector<gossip::Input>& out);
  void begin(Instant now, const wire::Endpoint& to, QuietLog& log, std::vector<gossip::Input>& out);
  void end(std::map<std::uint64_t, Check>::iterator check, gossip::GoneChecked::Answer answer, std::vector<gossip::Input>& out);

  Poller& poller_;
  const std::string source_ip_;
  std::map<std::uint64_t, Check> under_way_;  // by serial, and so in the order of their ends
  std::deque<wire::Endpoint> waiting_;
  std::vector<wire::Endpoint> overflowed_;
  std::uint64_t next_serial_ = 1;
};

}  // namespace dtrain::net
