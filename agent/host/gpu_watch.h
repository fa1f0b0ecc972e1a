// Watches this host's GPUs while the agent runs: every minute, in a child of a moment (dtrain-discover --health), how they are; and
// at once what the kernel's log says of them, after which a look is taken soon. Decides nothing.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/base/epoll.h"
#include "agent/host/known_gpus.h"
#include "common/base/result.h"
#include "common/base/time.h"
#include "common/node/gpu_sample.h"

namespace dtrain::host {

inline constexpr Duration kLookEvery = 1min;
inline constexpr Duration kLookSoonest = 5s;     // after the last one, where the kernel's log asks for it
// Then the child is killed, and what it said until then counts. One that is stuck in a driver dies when that lets go of it: until
// then no other look is taken, which is said.
inline constexpr Duration kLookPatience = 20s;
// The log is read that often at most, so many records at a time: a flood in it costs no more. What is overwritten meanwhile is lost.
inline constexpr Duration kLogPause = 200ms;
inline constexpr std::size_t kLogRecords = 512;

class GpuWatch {
 public:
  struct Options {
    std::string program;         // dtrain-discover
    std::string root;            // prefix of /dev, /proc and /sys
    std::string nvml;            // library; "": the system's
    std::vector<KnownGpu> gpus;  // at most kMostGpus
  };
  struct Sinks {
    std::function<void(std::vector<node::GpuSample>)> sampled;
    std::function<void(node::GpuFault)> faulted;
    std::function<void(const Error&)> failed;  // a look that came to nothing; of equal ones in a row only the first
  };

  static Result<std::unique_ptr<GpuWatch>> open(Options options, Sinks sinks);
  ~GpuWatch();  // kills the child that runs
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // Readable or due: dispatch() has something to do.
  int fd() const { return epoll_.fd(); }
  Instant deadline() const;
  void dispatch(Instant now);

 private:
  struct Look;
  GpuWatch(Options options, Sinks sinks);
  void open_log();
  void read_log(Instant now);
  void start_look(Instant now);
  void read_look();
  void end_look(const std::string& how);
  bool reap();
  void fail_look(const Error& error);

  Epoll epoll_;
  Options options_;
  Sinks sinks_;
  std::unique_ptr<Look> look_;  // under way
  pid_t ending_ = -1;           // the child of an earlier look, which was killed: not yet seen to have ended
  Instant next_look_{};
  UniqueFd log_;
  Instant next_log_ = kNever;   // it has more, after a pause
  Instant last_look_{};
  std::string last_failure_;
};

}  // namespace dtrain::host
