// The disk worker: the agent's only other thread. Whatever may wait for a disk (fsync, hashing, walking directories)
// runs here, so that the loop never does.
//
// Two lanes: commits (the ledger and the task records, which a submit waits for) go before bulk work (blobs,
// checkpoints, removing files). Long bulk work is posted in pieces, so that a commit never waits for more than one.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "agent/base/epoll.h"
#include "common/base/result.h"

namespace dtrain::store {

enum class Lane : unsigned char { commit, bulk };

inline constexpr std::size_t kDiskQueue = 4096;       // waiting works of each lane; a further one is refused
inline constexpr std::size_t kDiskDonePerTurn = 256;  // completions delivered by one dispatch()

class DiskWorker {
 public:
  using Done = std::function<void()>;  // runs on the owner's thread, inside dispatch(); may be empty
  using Work = std::function<Done()>;  // runs on the worker; must not throw

  static Result<std::unique_ptr<DiskWorker>> start();
  // Finishes the work that runs and the commits that wait; waiting bulk work is dropped, completions are not delivered.
  ~DiskWorker();
  DiskWorker(const DiskWorker&) = delete;
  DiskWorker& operator=(const DiskWorker&) = delete;

  // False: the lane is full and nothing was queued.
  [[nodiscard]] bool post(Lane lane, Work work);
  // Nothing waits, runs, or is to be delivered.
  bool idle() const;

  int fd() const { return news_.fd(); }  // readable when dispatch() has completions to deliver
  void dispatch();

 private:
  DiskWorker() = default;
  void run();

  const WorkFlag news_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Work> commits_, bulk_;
  std::deque<Done> done_;
  bool running_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace dtrain::store
