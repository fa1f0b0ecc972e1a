#include "agent/proc/staging.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "agent/proc/helper_program.h"
#include "common/base/check.h"
#include "common/wire/codec.h"

namespace dtrain::proc {

namespace {

constexpr std::size_t kStagesPerChild = 256;   // more tasks of one job: another child after it
constexpr std::size_t kRequestBytes = 64 << 20;  // to one child
constexpr std::size_t kAnswerBytes = 4 << 20;    // of one child; a longer one is a defect

Error system_error(const std::string& what) {
  return Error{ErrorCode::io, "could not " + what + ": " + std::strerror(errno),
               "raise the limits of processes and open files"};
}

struct StageRequest {
  node::Stage stage;
  template <class V>
  void fields(V& v) {
    v("id", stage.id);
    v("job_name", stage.job_name);
    v("user", stage.user);
    v("package_digest", stage.package_digest);
    v("work_dir", stage.work_dir);
    v("require_paths", stage.require_paths);
    v("address", stage.address);
    v("port", stage.port);
    v("fresh", stage.fresh);
  }
};

// What a child is asked for: stages, or one removal.
struct ChildRequest {
  std::vector<StageRequest> stages;
  bool removal = false;
  JobId job = 0;
  bool logs = false;
  template <class V>
  void fields(V& v) {
    v("stages", stages);
    v("removal", removal);
    v("job", job);
    v("logs", logs);
  }
};

// What a child answers: stages, or one removal (in `error`, when not ok).
struct ChildAnswer {
  std::vector<StageOutcome> stages;
  bool ok = true;
  Error error;
  template <class V>
  void fields(V& v) {
    v("stages", stages);
    v("ok", ok);
    v("error", error);
  }
};

bool add_to(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

// All that a memory file has; empty when there is nothing, or more than `most` bytes.
std::string read_all(int fd, std::size_t most) {
  const off_t size = ::lseek(fd, 0, SEEK_END);
  if (size <= 0 || static_cast<std::size_t>(size) > most) return "";
  std::string bytes(static_cast<std::size_t>(size), '\0');
  return ::pread(fd, bytes.data(), bytes.size(), 0) == size ? bytes : "";
}

bool write_all(int fd, const std::string& bytes, std::size_t most) {
  if (bytes.size() > most) errno = EFBIG;
  return bytes.size() <= most && ::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

// All that a child does. Without an answer the agent sees that it failed.
void work_in_child(const StageDirs& dirs, UniqueFd request_file, UniqueFd answer_file) {
  prepare_own_child();  // tar and rm are no more urgent than usual
  ::setpgid(0, 0);
  try {
    auto request = wire::decode<ChildRequest>(read_all(request_file.get(), kRequestBytes));
    if (!request) return;
    request_file.reset();
    ChildAnswer answer;
    if (request->removal) {
      const Status removed = perform_remove(dirs, request->job, request->logs);
      answer.ok = removed.has_value();
      if (!removed) answer.error = removed.error();
    } else {
      std::vector<node::Stage> stages;
      for (StageRequest& asked : request->stages) stages.push_back(std::move(asked.stage));
      answer.stages = perform_stages(dirs, stages);
    }
    if (!write_all(answer_file.get(), wire::encode(answer), kAnswerBytes)) ::_exit(EXIT_FAILURE);
  } catch (const std::exception&) {
    ::_exit(EXIT_FAILURE);  // no memory
  }
}

}  // namespace

Result<std::unique_ptr<Stager>> Stager::open(StageDirs dirs) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd work(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !work || !add_to(epoll.get(), work.get())) return fail(system_error("prepare staging"));
  auto forks = ForkServer::open([dirs = std::move(dirs)](UniqueFd request, UniqueFd answer) {
    work_in_child(dirs, std::move(request), std::move(answer));
  });
  if (!forks) return tl::unexpected(forks.error());
  return std::unique_ptr<Stager>(new Stager(std::move(*forks), std::move(epoll), std::move(work)));
}

Stager::Stager(std::unique_ptr<ForkServer> forks, UniqueFd epoll, UniqueFd work)
    : forks_(std::move(forks)), epoll_(std::move(epoll)), work_(std::move(work)) {}

Stager::~Stager() {
  for (const Child& child : children_) {
    ::kill(-child.pid, SIGKILL);
    while (::waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void Stager::set_work(bool wanted) {
  if (wanted == work_set_) return;
  std::uint64_t value = 1;
  const ssize_t done =
      wanted ? ::write(work_.get(), &value, sizeof value) : ::read(work_.get(), &value, sizeof value);
  if (done == static_cast<ssize_t>(sizeof value)) work_set_ = wanted;
}

void Stager::enqueue(JobId job, Work work) {
  auto& queue = queues_[job];
  const bool has_child =
      std::any_of(children_.begin(), children_.end(), [&](const Child& c) { return c.job == job; });
  if (queue.empty() && !has_child) order_.push_back(job);
  queue.push_back(std::move(work));
  ++queued_;
  set_work(true);
}

void Stager::stage(const node::Stage& effect) {
  if (queued_ < kStagingQueue) return enqueue(effect.id.job, effect);
  answers_.push_back(
      node::Staged{effect.id, fail(ErrorCode::limit,
                                   "could not stage " + effect.id.task.text() + ": " +
                                       std::to_string(kStagingQueue) + " tasks are waiting for staging here",
                                   "try again later")});
  set_work(true);
}

void Stager::remove(const node::RemoveJobFiles& effect) {
  if (queued_ < kStagingQueue) return enqueue(effect.job, effect);
  answers_.push_back(
      node::JobFilesRemoved{effect.job, fail(ErrorCode::limit,
                                             "could not remove files of job " + std::to_string(effect.job) +
                                                 ": too much is waiting for staging here",
                                             "try again later")});
  set_work(true);
}

Instant Stager::deadline() const {
  Instant earliest = kNever;
  for (const Child& child : children_)
    if (!child.late) earliest = std::min(earliest, child.give_up);
  return earliest;
}

Status Stager::start(Child& child, Instant now) {
  ChildRequest asked{{}, child.removal.has_value(), child.job, child.removal && child.removal->logs};
  for (const node::Stage& stage : child.stages) asked.stages.push_back({stage});
  const UniqueFd request(::memfd_create("dtrain-staging", MFD_CLOEXEC));
  child.result.reset(::memfd_create("dtrain-staging", MFD_CLOEXEC));
  if (!request || !child.result || !write_all(request.get(), wire::encode(asked), kRequestBytes))
    return fail(system_error("start staging"));
  child.pid = forks_->start(request.get(), child.result.get());
  if (child.pid < 0) {
    errno = -child.pid;
    return fail(system_error("start staging"));
  }
  ::setpgid(child.pid, child.pid);
  child.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  if (!child.pidfd || !add_to(epoll_.get(), child.pidfd.get())) {
    const Error error = system_error("watch staging");
    ::kill(-child.pid, SIGKILL);
    while (::waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return fail(error);
  }
  child.give_up = now + kStagingTime;
  return {};
}

void Stager::answer_failure(const Child& child, const Error& error, EventSink& sink) const {
  for (const node::Stage& stage : child.stages)
    sink(node::Staged{
        stage.id,
        fail(error.code, "could not stage " + stage.id.task.text() + ": " + error.message, error.next)});
  if (child.removal)
    sink(node::JobFilesRemoved{
        child.job,
        fail(error.code, "could not remove files of job " + std::to_string(child.job) + ": " + error.message,
             error.next)});
}

void Stager::start_children(Instant now, EventSink& sink) {
  while (!order_.empty() && children_.size() < kStagingChildren) {
    const JobId job = order_.front();
    order_.pop_front();
    auto& queue = queues_.at(job);
    CHECK(!queue.empty());
    Child child;
    child.job = job;
    if (const auto* removal = std::get_if<node::RemoveJobFiles>(&queue.front())) {
      child.removal = *removal;
      queue.pop_front();
    }
    while (!child.removal && !queue.empty() && child.stages.size() < kStagesPerChild) {
      auto* stage = std::get_if<node::Stage>(&queue.front());
      if (stage == nullptr) break;
      // The user decides what the child becomes: only tasks of the same one share it.
      if (!child.stages.empty() && stage->user.name != child.stages.front().user.name) break;
      child.stages.push_back(std::move(*stage));
      queue.pop_front();
    }
    queued_ -= child.removal ? 1 : child.stages.size();
    if (Status started = start(child, now); started) {
      children_.push_back(std::move(child));
      continue;
    } else {
      answer_failure(child, started.error(), sink);
    }
    if (queue.empty())
      queues_.erase(job);
    else
      order_.push_back(job);
  }
}

// The child has ended.
void Stager::collect(Child& child, int status, EventSink& sink) {
  auto answer = wire::decode<ChildAnswer>(read_all(child.result.get(), kAnswerBytes));
  if (child.late) {
    answer_failure(
        child,
        Error{ErrorCode::unavailable,
              "it took longer than " +
                  std::to_string(std::chrono::duration_cast<std::chrono::minutes>(kStagingTime).count()) +
                  " minutes",
              "check the file systems of this host"},
        sink);
  } else if (!answer || (!child.removal && answer->stages.size() != child.stages.size())) {
    const std::string how = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                                                : "exit " + std::to_string(WEXITSTATUS(status));
    answer_failure(child,
                   Error{ErrorCode::internal, "its helper process ended without an answer (" + how + ")",
                         "check this host's memory and the agent's log"},
                   sink);
  } else if (child.removal) {
    sink(node::JobFilesRemoved{child.job, answer->ok ? Status() : Status(fail(answer->error))});
  } else {
    for (std::size_t i = 0; i < child.stages.size(); ++i) {
      StageOutcome& outcome = answer->stages[i];
      sink(node::Staged{child.stages[i].id, outcome.ok ? Result<std::string>(std::move(outcome.work_dir))
                                                       : Result<std::string>(fail(outcome.error)),
                        outcome.lacks_package});
    }
  }
}

void Stager::dispatch(Instant now, EventSink& sink) {
  for (node::Event& answer : std::exchange(answers_, {})) sink(std::move(answer));
  for (auto child = children_.begin(); child != children_.end();) {
    const std::optional<int> status = reap_group(child->pid);  // with helpers that it may have left
    if (!status) {
      if (!child->late && now >= child->give_up) {
        child->late = true;
        ::kill(-child->pid, SIGKILL);
      }
      ++child;
      continue;
    }
    // Off the list first: the sink may ask for more work on the same job.
    std::list<Child> done;
    done.splice(done.begin(), children_, child++);
    const JobId job = done.front().job;
    if (const auto queue = queues_.find(job); queue != queues_.end()) {
      if (queue->second.empty())
        queues_.erase(queue);
      else
        order_.push_back(job);
    }
    collect(done.front(), *status, sink);
  }
  start_children(now, sink);
  set_work(!answers_.empty() || (!order_.empty() && children_.size() < kStagingChildren));
}

}  // namespace dtrain::proc
