// Watches this host's GPUs while the agent runs: samples their state every minute in a short-lived child (dtrain-discover
// --health), and reads the kernel's log about them at once, which makes the next sample follow soon. Decides nothing.
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
inline constexpr Duration kLookSoonest = 5s;  // after the previous sample, if the kernel's log asks for one
// Then the child is killed, and its output until then counts. A child that is stuck in a driver dies when the driver
// lets go of it: until then no other sample is taken, which is reported.
inline constexpr Duration kLookPatience = 20s;
// How often the log is read at most, and how many records at a time: a flood of records costs no more. Records
// overwritten meanwhile are lost.
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
    std::function<void(const Error&)> failed;  // a sample failed; of equal failures in a row only the first is reported
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
  std::unique_ptr<Look> look_;  // the sample in progress
  pid_t ending_ = -1;           // the killed child of an earlier sample, which has not been seen to end
  Instant next_look_{};
  UniqueFd log_;
  Instant next_log_ = kNever;  // the log has more, to be read after a pause
  Instant last_look_{};
  std::string last_failure_;
};

}  // namespace dtrain::host
