// Signals as descriptors: nothing of the agent runs in a signal handler.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "agent/base/unique_fd.h"
#include "common/base/result.h"

namespace dtrain::loop {

struct Signal {
  int number = 0;
  std::uint32_t uid = 0;  // of who sent it, as the kernel says
};

class Signals {
 public:
  // Blocks `signals` in the calling thread and in every thread it starts later: call it before the first one.
  static Result<Signals> open(std::initializer_list<int> signals);
  int fd() const { return fd_.get(); }
  // The next signal that arrived, or nullopt.
  std::optional<Signal> next();

 private:
  explicit Signals(int fd) : fd_(fd) {}
  UniqueFd fd_;
};

}  // namespace dtrain::loop
