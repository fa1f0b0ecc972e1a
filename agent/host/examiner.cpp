#include "agent/host/examiner.h"

#include <errno.h>
#include <string.h>

#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "agent/base/epoll.h"

namespace dtrain::host {

namespace {

// A thread that throws would end the agent.
Result<node::Examination> examine_or_say_why(const DoctorOptions& options) {
  try {
    return examine(options);
  } catch (const std::exception& cause) {
    return fail(ErrorCode::internal, cause.what());
  }
}

}  // namespace

struct Examiner::Shared {
  using Done = std::pair<std::uint64_t, Result<node::Examination>>;

  void tell(std::uint64_t token, Result<node::Examination> seen) {
    const std::lock_guard lock(mutex);
    --running;
    done.emplace_back(token, std::move(seen));
    news.raise();
  }
  const WorkFlag news;
  std::mutex mutex;
  std::size_t running = 0;
  std::vector<Done> done;  // not yet delivered
};

Result<std::unique_ptr<Examiner>> Examiner::open() {
  auto shared = std::make_shared<Shared>();
  if (!shared->news) return fail(ErrorCode::io, std::string("could not create the examiner's eventfd: ") + ::strerror(errno));
  return std::unique_ptr<Examiner>(new Examiner(std::move(shared)));
}

Examiner::~Examiner() = default;

int Examiner::fd() const { return shared_->news.fd(); }

void Examiner::begin(std::uint64_t token, DoctorOptions options) {
  const auto refuse = [&](const std::string& cause) {
    shared_->done.emplace_back(token, fail(ErrorCode::limit, cause));
    shared_->news.raise();
  };
  const std::lock_guard lock(shared_->mutex);
  if (shared_->running >= kExaminations) return refuse(std::to_string(kExaminations) + " earlier examinations of it have not ended");
  // Detached: the agent must be able to stop while a disk hangs. What the thread uses is shared.
  try {
    std::thread([shared = shared_, token, options = std::move(options)] { shared->tell(token, examine_or_say_why(options)); }).detach();
    ++shared_->running;
  } catch (const std::exception& no_thread) {
    refuse(std::string("no thread could be started: ") + no_thread.what());
  }
}

void Examiner::dispatch(const Sink& sink) {
  shared_->news.lower();
  std::vector<Shared::Done> done;
  {
    const std::lock_guard lock(shared_->mutex);
    done.swap(shared_->done);
  }
  for (auto& [token, seen] : done) sink(token, std::move(seen));
}

}  // namespace dtrain::host
