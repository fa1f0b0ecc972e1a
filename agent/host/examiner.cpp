#include "agent/host/examiner.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace dtrain::host {

struct Examiner::Shared {
  explicit Shared(int fd) : event_fd(fd) {}
  ~Shared() { ::close(event_fd); }
  const int event_fd;
  std::mutex mutex;
  std::size_t running = 0;
  std::vector<std::pair<std::uint64_t, node::Examination>> done;  // not yet delivered
};

Result<std::unique_ptr<Examiner>> Examiner::open() {
  const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) return fail(ErrorCode::io, std::string("could not create the examiner's eventfd: ") + ::strerror(errno));
  return std::unique_ptr<Examiner>(new Examiner(std::make_shared<Shared>(fd)));
}

Examiner::~Examiner() = default;

int Examiner::fd() const {
  return shared_->event_fd;
}

void Examiner::begin(std::uint64_t token, DoctorOptions options) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->running >= kExaminations) return;
    ++shared_->running;
  }
  // Detached: the agent must be able to stop while a disk hangs. What it touches is shared.
  try {
    std::thread([shared = shared_, token, options = std::move(options)] {
      node::Examination seen = examine(options);
      const std::lock_guard lock(shared->mutex);
      --shared->running;
      shared->done.emplace_back(token, std::move(seen));
      (void)::eventfd_write(shared->event_fd, 1);
    }).detach();
  } catch (const std::system_error&) {
    const std::lock_guard lock(shared_->mutex);
    --shared_->running;
  }
}

void Examiner::dispatch(const Sink& sink) {
  eventfd_t count = 0;
  (void)::eventfd_read(shared_->event_fd, &count);
  std::vector<std::pair<std::uint64_t, node::Examination>> done;
  {
    const std::lock_guard lock(shared_->mutex);
    done.swap(shared_->done);
  }
  for (auto& [token, seen] : done) sink(token, std::move(seen));
}

}  // namespace dtrain::host
