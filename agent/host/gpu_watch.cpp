#include "agent/host/gpu_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/host/discover_child.h"
#include "agent/host/kernel_log.h"

namespace dtrain::host {
namespace {

constexpr std::size_t kRecordBytes = 8 << 10;   // the longest that /dev/kmsg gives
constexpr std::size_t kCauseBytes = 1 << 10;    // of what a child says when it fails; the rest is left out
constexpr std::size_t kOutputBytes = 64 << 10;  // of one sample, and as many of errors; with more it is killed
constexpr int kReadsAtOnce = 8;                 // of one pipe, which holds no more; the loop has other work

enum class Source : unsigned char { log, output, errors, child };

constexpr std::uint64_t tag(Source source) { return static_cast<std::uint64_t>(source); }

Error not_looked(const std::string& cause) {
  return {ErrorCode::unavailable, "could not look at the GPUs: " + cause, "it is tried again every minute"};
}

// Appends what can be read now; false: the other end is closed.
bool read_some(int fd, std::string& to) {
  char chunk[16 << 10];
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    to.append(chunk, std::min(static_cast<std::size_t>(got), kOutputBytes - std::min(kOutputBytes, to.size())));
  }
  return true;
}

}  // namespace

struct GpuWatch::Look {
  Child child;
  UniqueFd pid_fd;
  std::string output, errors;
  Instant limit{};
};

Result<std::unique_ptr<GpuWatch>> GpuWatch::open(Options options, Sinks sinks) {
  std::unique_ptr<GpuWatch> watch(new GpuWatch(std::move(options), std::move(sinks)));
  if (!watch->epoll_) return fail(ErrorCode::io, std::string("could not watch the GPUs: ") + ::strerror(errno));
  watch->open_log();
  return watch;
}

GpuWatch::GpuWatch(Options options, Sinks sinks) : options_(std::move(options)), sinks_(std::move(sinks)) {}

GpuWatch::~GpuWatch() {
  if (look_ != nullptr) ::kill(ending_ = look_->child.pid, SIGKILL);
  reap();  // one that is stuck in a driver is left behind; init will reap it
}

Instant GpuWatch::deadline() const { return std::min(look_ == nullptr ? next_look_ : look_->limit, next_log_); }

// Without the log, as for an agent that is not root, only measurements remain.
void GpuWatch::open_log() {
  const std::string path = options_.root + "/dev/kmsg";
  log_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (log_) ::lseek(log_.get(), 0, SEEK_END);  // what was said before this life was for an earlier one
  if (log_ && epoll_.add(log_.get(), tag(Source::log), EPOLLIN | EPOLLONESHOT)) return;
  sinks_.failed({ErrorCode::unavailable, "could not read " + path + ": " + ::strerror(errno),
                 "Xid errors of NVIDIA GPUs go unseen; run the agent as root"});
}

// Each read returns a record; EPIPE: some were overwritten before they were read.
void GpuWatch::read_log(Instant now) {
  next_log_ = kNever;
  char record[kRecordBytes];
  for (std::size_t i = 0; i < kLogRecords; ++i) {
    const ssize_t got = ::read(log_.get(), record, sizeof record);
    if (got < 0 && (errno == EINTR || errno == EPIPE)) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) return log_.reset();
    auto fault = parse_gpu_fault(std::string_view(record, static_cast<std::size_t>(got)));
    if (!fault) continue;
    next_look_ = std::min(next_look_, std::max(now, last_look_ + kLookSoonest));
    sinks_.faulted(std::move(*fault));
  }
  next_log_ = now + kLogPause;
}

void GpuWatch::start_look(Instant now) {
  last_look_ = now;
  next_look_ = now + kLookEvery;
  if (!reap())
    return fail_look(not_looked("dtrain-discover --health, begun earlier (pid " + std::to_string(ending_) + "), cannot be killed"));
  std::vector<std::string> arguments{"--health"};
  if (!options_.root.empty()) arguments.insert(arguments.end(), {"--root", options_.root});
  if (!options_.nvml.empty()) arguments.insert(arguments.end(), {"--nvml", options_.nvml});
  for (const KnownGpu& gpu : options_.gpus) arguments.insert(arguments.end(), {"--known", known_gpu_text(gpu)});
  auto child = start_child(options_.program, std::move(arguments));
  if (!child) return fail_look(child.error());
  auto look = std::make_unique<Look>();
  look->child = std::move(*child);
  look->limit = now + kLookPatience;
  look->pid_fd.reset(static_cast<int>(::syscall(SYS_pidfd_open, look->child.pid, 0)));
  for (const int fd : {look->child.output.get(), look->child.errors.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  if (!look->pid_fd || !epoll_.add(look->pid_fd.get(), tag(Source::child)) || !epoll_.add(look->child.output.get(), tag(Source::output)) ||
      !epoll_.add(look->child.errors.get(), tag(Source::errors))) {
    const int cause = errno;
    ::kill(ending_ = look->child.pid, SIGKILL);
    return fail_look(not_looked(::strerror(cause)));
  }
  look_ = std::move(look);
}

void GpuWatch::read_look() {
  if (look_->child.output.get() >= 0 && !read_some(look_->child.output.get(), look_->output)) look_->child.output.reset();
  if (look_->child.errors.get() >= 0 && !read_some(look_->child.errors.get(), look_->errors)) look_->child.errors.reset();
}

// `how` it ended; if it has not ended by itself, it is killed.
void GpuWatch::end_look(const std::string& how) {
  read_look();
  const auto look = std::move(look_);
  int status = 0;
  const bool ended = ::waitpid(look->child.pid, &status, WNOHANG) == look->child.pid;
  if (!ended) ::kill(ending_ = look->child.pid, SIGKILL);
  auto samples = last_answer<GpuSamples>(look->output);
  if (samples && !samples->gpus.empty()) sinks_.sampled(std::move(samples->gpus));
  if (samples && samples->complete) return last_failure_.clear();
  std::string cause = !ended                ? how
                      : WIFSIGNALED(status) ? "was killed by signal " + std::to_string(WTERMSIG(status))
                                            : "ended with " + std::to_string(WEXITSTATUS(status));
  if (!look->errors.empty()) cause += " (" + look->errors.substr(0, std::min(look->errors.find('\n'), kCauseBytes)) + ")";
  fail_look(not_looked("dtrain-discover --health " + cause));
}

// Returns false if a killed child has not ended.
bool GpuWatch::reap() {
  if (ending_ > 0 && ::waitpid(ending_, nullptr, WNOHANG) == 0) return false;
  ending_ = -1;
  return true;
}

void GpuWatch::fail_look(const Error& error) {
  if (std::exchange(last_failure_, error.message) != error.message) sinks_.failed(error);
}

void GpuWatch::dispatch(Instant now) {
  epoll_event events[4];
  bool ended = false;
  for (const epoll_event& event : epoll_.ready(events)) {
    const auto source = static_cast<Source>(event.data.u64);
    if (source == Source::log) read_log(now);
    else if (look_ != nullptr) read_look(), ended = ended || source == Source::child;
  }
  if (ended) end_look("cannot be waited for");
  else if (look_ != nullptr && std::max(look_->output.size(), look_->errors.size()) == kOutputBytes) end_look("said too much");
  else if (look_ != nullptr && look_->limit <= now) end_look("did not end in time");
  if (look_ == nullptr && next_look_ <= now) start_look(now);
  if (next_log_ > now || !log_) return;
  next_log_ = kNever;
  (void)epoll_.change(log_.get(), tag(Source::log), EPOLLIN | EPOLLONESHOT);
}

}  // namespace dtrain::host
