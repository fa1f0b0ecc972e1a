// Hosts that share a few processors, as a hundred agents on one test machine do: their work waits for its turn, and
// lateness makes them suspect each other.
#pragma once

#include <cstdint>
#include <deque>

#include "tests/sim/membership/event_queue.h"

namespace dtrain::sim::membership {

class Processors {
 public:
  // About twice what an agent's steps were measured to take, including its kernel and ZeroMQ, at both ends.
  static constexpr Duration kMessage = 240us, kHandshake = 2400us, kConnect = 200us, kOther = 40us;

  // 0: one for each host, and infinitely fast.
  explicit Processors(std::uint32_t count) : count_(count) {}

  // Returns true if it is its turn now. Otherwise it waits in line, and a What::processor event at `wake` continues it.
  bool begins(const Event& event, Instant now, EventQueue& queue) {
    if (count_ == 0 || !takes_time(event.what)) return true;
    if (free_ > now || !line_.empty()) {
      if (line_.empty()) queue.push(free_, What::processor, 0);
      line_.push_back(event);
      return false;
    }
    free_ = now + cost(event.what) / count_;
    return true;
  }
  // For a What::processor event: the next in line.
  Event next(Instant now, EventQueue& queue) {
    const Event event = line_.front();
    line_.pop_front();
    free_ = now + cost(event.what) / count_;
    if (!line_.empty()) queue.push(free_, What::processor, 0);
    return event;
  }
  std::size_t waiting() const { return line_.size(); }

 private:
  static bool takes_time(What what) {
    return what == What::message || what == What::handshake || what == What::connect || what == What::tick || what == What::input;
  }
  static Duration cost(What what) {
    switch (what) {
      case What::message: return kMessage;
      case What::handshake: return kHandshake;
      case What::connect: return kConnect;
      default: return kOther;
    }
  }

  std::uint32_t count_;
  Instant free_{};
  std::deque<Event> line_;
};

}  // namespace dtrain::sim::membership
