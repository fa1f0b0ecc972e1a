// Runs the program of `healthCheck`, again and again, as the agent's own user: in a session of its own, in /, with stdin /dev/null and
// PATH, LC_ALL=C.UTF-8 and DTRAIN_NODE alone as its environment. Never two at a time. Decides nothing: how each run ended is an event
// (common/node/host_health.h judges it).
//
// A run that does not end within its timeout is killed with its session, and is told of then. One that cannot be killed (stuck in a
// driver or on a dead file system) is told of each time that it is due again; no other begins before it has ended.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/base/epoll.h"
#include "agent/proc/runner.h"
#include "common/base/result.h"
#include "common/base/time.h"
#include "common/node/host_health.h"

namespace dtrain::proc {

class HealthCheck {
 public:
  struct Options {
    std::vector<std::string> command;  // empty: there is none
    Duration every{}, timeout{};       // every: from the beginning of one run to that of the next; timeout: of one run
    std::string node;                  // DTRAIN_NODE
    bool operator==(const Options&) const = default;
  };
  static Result<std::unique_ptr<HealthCheck>> open();
  ~HealthCheck();  // kills what runs
  HealthCheck(const HealthCheck&) = delete;
  HealthCheck& operator=(const HealthCheck&) = delete;

  // Uses these options from now on, beginning at once. A run under other options is killed and not reported. Equal
  // options change nothing.
  void configure(Instant now, Options options);

  // Readable or due: dispatch() has something to do.
  int fd() const { return epoll_.fd(); }
  Instant deadline() const;
  void dispatch(Instant now, EventSink& sink);  // -> HostChecked

 private:
  struct Run;
  HealthCheck();
  node::HostCheck begin(Instant now);
  void read_output();
  bool reap(node::HostCheck& seen);

  Epoll epoll_;
  Options options_;
  std::unique_ptr<Run> run_;
  Instant next_ = kNever;  // when the next is due
};

}  // namespace dtrain::proc
