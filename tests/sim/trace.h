// What happened in a run: a hash over every event and effect with its time, so that two runs of one seed can be
// compared, and on demand the same as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/node/effect.h"
#include "common/node/event.h"
#include "tests/sim/violation.h"

namespace dtrain::sim {

class Trace {
 public:
  // `several`: hosts, which are told apart.
  Trace(bool print, bool several) : print_(print), several_(several) {}
  void at_host(std::size_t number) { host_ = number; }  // what comes next happens there
  void event(Instant at, const node::Event& event);
  void effect(Instant at, const node::Effect& effect);
  void note(Instant at, std::string_view text);  // what the world did by itself: a fault, an end
  std::uint64_t hash() const { return hash_; }
  std::uint64_t events() const { return events_; }
  bool printing() const { return print_; }

 private:
  void line(Instant at, std::string_view mark, std::string_view text);

  std::uint64_t hash_ = 0x9e3779b97f4a7c15ull;
  std::uint64_t events_ = 0;
  std::size_t host_ = 0;
  bool print_, several_;
};

}  // namespace dtrain::sim
