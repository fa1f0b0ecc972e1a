#include "agent/store/disk_worker.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <system_error>

namespace dtrain::store {

namespace {

// Bulk work is that of users, mostly: while it is done, this thread has no better priority than they. (Of one thread: Linux counts so.)
class UsualPriority {
 public:
  explicit UsualPriority(bool wanted) : before_(wanted ? ::getpriority(PRIO_PROCESS, 0) : 0) {
    if (before_ < 0) ::setpriority(PRIO_PROCESS, 0, 0);
  }
  ~UsualPriority() {
    if (before_ < 0) ::setpriority(PRIO_PROCESS, 0, before_);
  }
  UsualPriority(const UsualPriority&) = delete;
  UsualPriority& operator=(const UsualPriority&) = delete;

 private:
  const int before_;
};

}  // namespace

Result<std::unique_ptr<DiskWorker>> DiskWorker::start() {
  std::unique_ptr<DiskWorker> worker(new DiskWorker);
  if (!worker->news_) return fail(ErrorCode::io, std::string("could not create the disk worker's eventfd: ") + ::strerror(errno));
  try {
    worker->thread_ = std::thread([raw = worker.get()] { raw->run(); });
  } catch (const std::system_error& e) {
    return fail(ErrorCode::io, std::string("could not start the disk worker: ") + e.what(),
                "raise the limit of threads (ulimit -u, pids.max)");
  }
  ::pthread_setname_np(worker->thread_.native_handle(), "dtraind-disk");
  return worker;
}

DiskWorker::~DiskWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool DiskWorker::post(Lane lane, Work work) {
  {
    const std::lock_guard lock(mutex_);
    auto& queue = lane == Lane::commit ? commits_ : bulk_;
    if (queue.size() >= kDiskQueue) return false;
    queue.push_back(std::move(work));
  }
  wake_.notify_one();
  return true;
}

bool DiskWorker::idle() const {
  const std::lock_guard lock(mutex_);
  return commits_.empty() && bulk_.empty() && done_.empty() && !running_;
}

void DiskWorker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !commits_.empty() || !bulk_.empty(); });
    if (stop_ && commits_.empty()) return;
    const bool bulk = commits_.empty();
    auto& queue = bulk ? bulk_ : commits_;
    const Work work = std::move(queue.front());
    queue.pop_front();
    running_ = true;
    lock.unlock();
    Done done = [&] {
      const UsualPriority usual(bulk);
      return work();
    }();
    lock.lock();
    running_ = false;
    if (done_.empty()) news_.raise();
    done_.push_back(std::move(done));
  }
}

void DiskWorker::dispatch() {
  std::deque<Done> batch;
  {
    const std::lock_guard lock(mutex_);
    news_.lower();
    while (!done_.empty() && batch.size() < kDiskDonePerTurn) {
      batch.push_back(std::move(done_.front()));
      done_.pop_front();
    }
    if (!done_.empty()) news_.raise();
  }
  for (const Done& done : batch)
    if (done) done();
}

}  // namespace dtrain::store
