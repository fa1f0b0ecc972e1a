// systemd's manager, asked over D-Bus (sd-bus) without ever waiting for it. The library is loaded by whoever launches through systemd, and
// by nobody else: with what it needs it is a fifth of an agent's memory.
//
// A connection is made for the first call and closed when nothing was asked for kBusIdle: an idle agent is woken by nobody. One that is
// lost (D-Bus restarted, systemd executed itself anew) leaves its calls unanswered, and the next call makes another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/base/epoll.h"
#include "agent/proc/unit_properties.h"
#include "common/base/result.h"
#include "common/base/time.h"

namespace dtrain::proc {

inline constexpr Duration kBusIdle = 10s;

class SystemBus {
 public:
  // Fails where the library is not there, or is too old.
  static Result<std::unique_ptr<SystemBus>> open(Epoll& poller, std::uint64_t tag);
  virtual ~SystemBus() = default;

  enum class Outcome : unsigned char {
    begun,  // it will be executed, unless that fails
    refused,
    unknown,  // nobody could be asked, or answered: it may come about, and may be asked for again
  };
  using Answer = std::function<void(Outcome, const std::string& cause)>;

  // StartTransientUnit; `input` becomes its standard input, and stays the caller's. The answer comes from dispatch(), or at once where
  // nobody could be asked. Of a unit that is there already: begun.
  virtual void start(const std::string& unit, const std::vector<UnitProperty>& properties, int input, Answer answer) = 0;
  // StopUnit, behind everything that was asked before. Nobody answers, and it may be lost: a shim that nobody waits for leaves by itself.
  virtual void stop(const std::string& unit) = 0;

  // When the descriptor behind `tag` is ready, or the deadline has come.
  virtual void dispatch() = 0;
  virtual Instant deadline() const = 0;
};

}  // namespace dtrain::proc
