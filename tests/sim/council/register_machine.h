// The state machine that the simulated council replicates: one register that every command writes. Each write that is
// carried out makes a new version, so that a history of requests and answers can be judged by versions alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/raft/log_entry.h"
#include "common/raft/request_window.h"
#include "common/raft/rules.h"

namespace dtrain::sim::council {

// What a reader sees, and what a writer is told: the version that its write made.
struct Reading {
  std::uint64_t version = 0;  // 0: never written
  std::uint64_t request = 0;  // whose write made it
  std::uint64_t chain = 0;    // a hash over all requests that made versions, in order
  bool operator==(const Reading&) const = default;
};

struct Command {
  std::uint64_t request = 0;  // the client's; the same when it is repeated
  std::uint64_t minted = 0;   // the log's index that the client knew when it made the request
};
std::string encode_command(const Command& command);
std::optional<Command> decode_command(std::string_view bytes);

class RegisterMachine {
 public:
  // Requests are remembered for `window` entries; older requests are refused.
  RegisterMachine(std::uint64_t window, const raft::Rules& rules) : window_(rules, window), window_entries_(window) {}

  enum class Done : std::uint8_t { nothing, executed, repeated, refused };  // refused: too old to be judged
  struct Outcome {
    Done done = Done::nothing;  // no command: a leader's own entry, a configuration
    std::uint64_t request = 0;
    Reading reading;  // executed, repeated: what the request is answered with
  };
  Outcome apply(const raft::LogEntry& entry);

  const Reading& reading() const { return reading_; }
  std::uint64_t applied() const { return applied_; }
  std::uint64_t trail() const { return trail_; }  // a hash over all that was applied and what came of it
  Duration elapsed() const { return elapsed_; }
  std::string encode() const;
  bool decode(std::string_view bytes);  // false: it is no such state

 private:
  Outcome carry_out(const Command& command, std::uint64_t index);

  Reading reading_;
  std::uint64_t applied_ = 0, trail_ = 0;
  Duration elapsed_{0};
  raft::RequestWindow window_;
  std::uint64_t window_entries_;
  std::map<std::uint64_t, Reading> answers_;  // of what the window remembers, by index
};

}  // namespace dtrain::sim::council
