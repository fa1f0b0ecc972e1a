// Clients of the simulated council. Each has one operation in progress: it asks a machine, asks another, with the
// same request id, when it is refused or gets no answer, and gives up after a while without knowing the result.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/rng.h"
#include "tests/sim/council/checker.h"
#include "tests/sim/council/event.h"
#include "tests/sim/slab.h"

namespace dtrain::sim::council {

// The world, as clients see it.
class ClientsUser {
 public:
  virtual ~ClientsUser() = default;
  virtual void begun(const Operation& operation) = 0;
  virtual void give(const raft::History& by, const Operation& operation, const Reading& reading) = 0;
};

struct Attempt {
  std::uint32_t client = 0;
  Operation operation;
  Command command;
  Slot slot = 0;  // who is asked
  enum class End : std::uint8_t { none, answered, refused, too_old } end = End::none;
  Reading reading;             // answered
  raft::History history;       // of who answered
  std::uint64_t index = 0;     // that the machine has applied
  std::optional<Slot> leader;  // refused: ask there
};

class Clients {
 public:
  Clients(EventQueue& queue, Rng rng, ClientsUser& user) : queue_(queue), rng_(rng), user_(user) {}

  void begin(Instant now, std::uint32_t clients, Slot machines);
  void set_pace(Duration mean) { pace_ = mean; }
  void stop() { stopped_ = true; }  // nothing more is asked
  Attempt& attempt(std::uint32_t at) { return attempts_[at]; }
  // The machine has done with it; `attempt` says how. None of its fields: the answer is lost.
  void answer(Instant now, std::uint32_t attempt);
  void drop(std::uint32_t attempt) { attempts_.drop(attempt); }

  void on_client(const Event& event);
  void on_told(const Event& event);

  std::uint64_t writes() const { return writes_; }
  std::uint64_t reads() const { return reads_; }
  std::uint64_t given_up() const { return given_up_; }

 private:
  struct Client {
    Operation operation;
    Command command;
    std::uint64_t known_index = 0;
    std::uint32_t tries = 0, wake = 0;
    bool busy = false;
    Slot last = 0;
  };
  void begin_operation(Instant now, std::uint32_t client);
  void ask(Instant now, std::uint32_t client, Slot slot);
  void wake_later(Instant now, std::uint32_t client, Duration after);
  void rest(Instant now, std::uint32_t client);
  Duration upto(Duration most) { return Duration(static_cast<std::int64_t>(rng_.below(static_cast<std::uint64_t>(most.count()) + 1))); }

  EventQueue& queue_;
  Rng rng_;
  ClientsUser& user_;
  std::vector<Client> clients_;
  Slab<Attempt> attempts_;
  Slot machines_ = 1;
  Duration pace_ = 200ms;
  bool stopped_ = false;
  std::uint64_t requests_ = 0, writes_ = 0, reads_ = 0, given_up_ = 0;
};

}  // namespace dtrain::sim::council
