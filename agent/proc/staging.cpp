#include "agent/proc/staging.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "agent/account/host_user.h"
#include "agent/proc/helper_program.h"
#include "agent/proc/pass_descriptors.h"
#include "common/base/check.h"
#include "common/wire/codec.h"

namespace dtrain::proc {

namespace {

constexpr std::size_t kStagesPerErrand = 256;         // further tasks of the same job make another errand after it
constexpr std::size_t kRequestBytes = 64 << 20;       // of one errand
constexpr std::size_t kAnswerBytes = 4 << 20;         // to one errand; a longer answer is a bug
constexpr const char* kWorkerName = "dtraind-stage";  // in ps; at most 15 characters

Error staging_error(const std::string& what) {
  return Error{ErrorCode::io, "could not " + what + ": " + std::strerror(errno), "raise the limits of processes and open files"};
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
    v("make_dirs", stage.make_dirs);
    v("image", stage.image);
  }
};

// A worker's order: stages, or one removal.
struct Request {
  std::vector<StageRequest> stages;
  bool removal = false;
  JobId job = 0;
  node::JobFiles files = node::JobFiles::temporary;
  template <class V>
  void fields(V& v) {
    v("stages", stages);
    v("removal", removal);
    v("job", job);
    v("files", files);
  }
};

// A worker's answer: stages, or one removal (in `error`, when not ok).
struct Answer {
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

// The content of a memory file; empty when there is none, or more than `most` bytes.
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

Answer perform(const StageDirs& dirs, Request request) {
  Answer answer;
  if (request.removal) {
    const Status removed = perform_remove(dirs, request.job, request.files);
    answer.ok = removed.has_value();
    if (!removed) answer.error = removed.error();
  } else {
    std::vector<node::Stage> stages;
    for (StageRequest& asked : request.stages) stages.push_back(std::move(asked.stage));
    answer.stages = perform_stages(dirs, stages, PortOwner::process);
  }
  return answer;
}

void tell(const std::vector<node::Stage>& stages, std::vector<StageOutcome> outcomes, EventSink& sink) {
  for (std::size_t i = 0; i < stages.size(); ++i) {
    StageOutcome& outcome = outcomes[i];
    sink(node::Staged{stages[i].id,
                      outcome.ok ? Result<std::string>(std::move(outcome.work_dir)) : Result<std::string>(fail(outcome.error)),
                      outcome.lacks_package, outcome.host_refused});
  }
}

// The work of a worker, until the agent is gone or an errand fails because memory ran out, which the agent sees by
// the missing answer.
void work_as_worker(const StageDirs& dirs, const UniqueFd& socket) {
  prepare_own_child();  // tar and rm have the usual priority
  ::setpgid(0, 0);
  ::prctl(PR_SET_NAME, kWorkerName);
  try {
    (void)account::find_user({"", ::geteuid()});  // loads the name services
    for (;;) {
      auto errand = receive_descriptors<2>(socket.get());
      if (!errand) return;
      const auto& [request_file, answer_file] = *errand;
      auto request = wire::decode<Request>(read_all(request_file.get(), kRequestBytes));
      if (!request) return;
      if (!write_all(answer_file.get(), wire::encode(perform(dirs, std::move(*request))), kAnswerBytes)) return;
      const char done = 0;
      if (::send(socket.get(), &done, sizeof done, MSG_NOSIGNAL) != sizeof done) return;
    }
  } catch (const std::exception&) {
    ::_exit(EXIT_FAILURE);
  }
}

}  // namespace

Result<std::unique_ptr<Stager>> Stager::open(StageDirs dirs) {
  Epoll epoll;
  WorkFlag work;
  if (!epoll || !work || !epoll.add(work.fd())) return fail(staging_error("prepare staging"));
  auto forks = ForkServer::open([dirs](UniqueFd socket) { work_as_worker(dirs, socket); });
  if (!forks) return tl::unexpected(forks.error());
  std::unique_ptr<Stager> stager(new Stager(std::move(dirs), std::move(*forks), std::move(epoll), std::move(work)));
  if (const auto first = stager->begin_worker(); !first) return tl::unexpected(first.error());
  return stager;
}

Stager::Stager(StageDirs dirs, std::unique_ptr<ForkServer> forks, Epoll epoll, WorkFlag work)
    : dirs_(std::move(dirs)), forks_(std::move(forks)), epoll_(std::move(epoll)), work_(std::move(work)) {}

Stager::~Stager() {
  for (const Worker& worker : workers_) end_group(worker.pid);
}

void Stager::enqueue(JobId job, Work work) {
  auto& queue = queues_[job];
  const bool at_work = std::any_of(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.errand && w.errand->job == job; });
  if (queue.empty() && !at_work) order_.push_back(job);
  queue.push_back(std::move(work));
  ++queued_;
  work_.set(true);
}

void Stager::stage(const node::Stage& effect) {
  if (queued_ < kStagingQueue) return enqueue(effect.id.job, effect);
  answers_.push_back(node::Staged{effect.id, fail(ErrorCode::limit,
                                                  "could not stage " + effect.id.task.text() + ": " + std::to_string(kStagingQueue) +
                                                      " tasks are waiting for staging here",
                                                  "try again later")});
  work_.set(true);
}

// An agent that starts asks this for every ended job that it knows; if there is nothing to remove, that needs no worker.
void Stager::remove(const node::RemoveJobFiles& effect) {
  if (effect.files == node::JobFiles::temporary && !queues_.contains(effect.job) && no_temporary(dirs_, effect.job)) {
    answers_.push_back(node::JobFilesRemoved{effect.job, {}});
    return work_.set(true);
  }
  if (queued_ < kStagingQueue) return enqueue(effect.job, effect);
  answers_.push_back(node::JobFilesRemoved{
      effect.job,
      fail(ErrorCode::limit, "could not remove files of job " + std::to_string(effect.job) + ": too much is waiting for staging here",
           "try again later")});
  work_.set(true);
}

Instant Stager::deadline() const {
  Instant earliest = kNever;
  for (const Worker& worker : workers_)
    if (worker.errand && !worker.errand->late) earliest = std::min(earliest, worker.errand->give_up);
  return earliest;
}

Result<Stager::Worker*> Stager::begin_worker() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return fail(staging_error("begin a staging worker"));
  Worker worker;
  worker.socket.reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  worker.pid = forks_->start(theirs.get());
  if (worker.pid < 0) {
    errno = -worker.pid;
    return fail(staging_error("begin a staging worker"));
  }
  ::setpgid(worker.pid, worker.pid);
  worker.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, worker.pid, 0)));
  if (!worker.pidfd || !epoll_.add(worker.pidfd.get()) || !epoll_.add(worker.socket.get())) {
    const Error error = staging_error("watch a staging worker");
    end_group(worker.pid);
    return fail(error);
  }
  return &workers_.emplace_back(std::move(worker));
}

// Gives the errand to an idle worker, or to a new one.
Status Stager::start(Errand& errand) {
  Request asked{{}, errand.removal.has_value(), errand.job, errand.removal ? errand.removal->files : node::JobFiles::temporary};
  for (const node::Stage& stage : errand.stages) asked.stages.push_back({stage});
  const UniqueFd request(::memfd_create("dtrain-staging", MFD_CLOEXEC));
  errand.result.reset(::memfd_create("dtrain-staging", MFD_CLOEXEC));
  if (!request || !errand.result || !write_all(request.get(), wire::encode(asked), kRequestBytes))
    return fail(staging_error("start staging"));
  const auto give = [&](Worker& worker) {
    if (!send_descriptors<2>(worker.socket.get(), {request.get(), errand.result.get()})) return false;
    worker.errand = std::move(errand);
    return true;
  };
  for (Worker& worker : workers_)  // one that has just died accepts none
    if (!worker.errand && give(worker)) return {};
  const auto begun = begin_worker();
  if (!begun) return fail(begun.error());
  return give(**begun) ? Status() : fail(staging_error("start staging"));
}

void Stager::answer_failure(const Errand& errand, const Error& error, EventSink& sink) const {
  for (const node::Stage& stage : errand.stages)
    sink(node::Staged{stage.id, fail(error.code, "could not stage " + stage.id.task.text() + ": " + error.message, error.next)});
  if (errand.removal)
    sink(node::JobFilesRemoved{
        errand.job, fail(error.code, "could not remove files of job " + std::to_string(errand.job) + ": " + error.message, error.next)});
}

std::size_t Stager::busy() const {
  return static_cast<std::size_t>(std::ranges::count_if(workers_, [](const Worker& worker) { return worker.errand.has_value(); }));
}

// Removals run as the agent, which has no larger share.
std::deque<JobId>::iterator Stager::next_for_worker() {
  if (busy() >= kStagingWorkers) return for_workers_.end();
  std::map<std::string_view, std::size_t> at_work;
  for (const Worker& worker : workers_)
    if (worker.errand) ++at_work[worker.errand->stages.empty() ? "" : std::string_view(worker.errand->stages.front().user.name)];
  return std::ranges::find_if(for_workers_, [&](JobId job) {
    const auto* stage = std::get_if<node::Stage>(&queues_.at(job).front());
    return at_work[stage != nullptr ? std::string_view(stage->user.name) : ""] < kStagingWorkersOfUser;
  });
}

Stager::Errand Stager::take_errand(JobId job) {
  auto& queue = queues_.at(job);
  CHECK(!queue.empty());
  Errand errand;
  errand.job = job;
  if (const auto* removal = std::get_if<node::RemoveJobFiles>(&queue.front())) {
    errand.removal = *removal;
    queue.pop_front();
  }
  while (!errand.removal && !queue.empty() && errand.stages.size() < kStagesPerErrand) {
    auto* stage = std::get_if<node::Stage>(&queue.front());
    if (stage == nullptr) break;
    // The user decides as whom the worker acts, so only tasks of the same user share an errand.
    if (!errand.stages.empty() && stage->user.name != errand.stages.front().user.name) break;
    errand.stages.push_back(std::move(*stage));
    queue.pop_front();
  }
  queued_ -= errand.removal ? 1 : errand.stages.size();
  return errand;
}

// Whether all that waits for the job is.
bool Stager::is_brief(JobId job) const {
  const std::deque<Work>& queue = queues_.at(job);
  return queue.size() <= kBriefStages && std::all_of(queue.begin(), queue.end(), [&](const Work& work) {
           const auto* stage = std::get_if<node::Stage>(&work);
           return stage != nullptr && proc::is_brief(dirs_, *stage);
         });
}

// Brief stagings wait for no worker: all may be busy with copies that take half an hour.
void Stager::start_errands(Instant now, EventSink& sink) {
  for (;;) {
    while (!order_.empty()) {
      const JobId job = order_.front();
      order_.pop_front();
      if (is_brief(job)) stage_here(job, sink);
      else for_workers_.push_back(job);
    }
    const auto next = next_for_worker();
    if (next == for_workers_.end()) return;
    const JobId job = *next;
    for_workers_.erase(next);
    hand_over(job, now, sink);
  }
}

void Stager::stage_here(JobId job, EventSink& sink) {
  const Errand errand = take_errand(job);
  std::vector<StageOutcome> outcomes = perform_stages(dirs_, errand.stages, PortOwner::user);
  after_errand(job);
  tell(errand.stages, std::move(outcomes), sink);
}

void Stager::hand_over(JobId job, Instant now, EventSink& sink) {
  Errand errand = take_errand(job);
  errand.give_up = now + kStagingTime;
  const Status started = start(errand);
  if (started) return;
  after_errand(job);
  answer_failure(errand, started.error(), sink);
}

// Continues with what else waits for the job, and forgets a job for which nothing waits. To be called before the
// sink, which may ask for more work on the same job.
void Stager::after_errand(JobId job) {
  const auto queue = queues_.find(job);
  if (queue == queues_.end()) return;
  if (queue->second.empty()) queues_.erase(queue);
  else order_.push_back(job);
}

// An errand may be done twice, as after a death of the agent. Returns false if it was, took too long, or cannot be begun.
bool Stager::repeat(Errand& errand) {
  if (errand.late || std::exchange(errand.repeated, true)) return false;
  return start(errand).has_value();
}

// `status`: of its worker, which ended without reporting that it is done.
void Stager::finish(Errand errand, std::optional<int> status, EventSink& sink) {
  after_errand(errand.job);
  auto answer = wire::decode<Answer>(read_all(errand.result.get(), kAnswerBytes));
  if (errand.late) {
    answer_failure(
        errand,
        Error{ErrorCode::unavailable,
              "it took longer than " + std::to_string(std::chrono::duration_cast<std::chrono::minutes>(kStagingTime).count()) + " minutes",
              "check the file systems of this host"},
        sink);
  } else if (!answer || (!errand.removal && answer->stages.size() != errand.stages.size())) {
    const std::string how = !status                ? "it is damaged"
                            : WIFSIGNALED(*status) ? "signal " + std::to_string(WTERMSIG(*status))
                                                   : "exit " + std::to_string(WEXITSTATUS(*status));
    answer_failure(
        errand,
        Error{ErrorCode::internal, "its helper process gave no answer (" + how + ")", "check this host's memory and the agent's log"},
        sink);
  } else if (errand.removal) {
    sink(node::JobFilesRemoved{errand.job, answer->ok ? Status() : Status(fail(answer->error))});
  } else {
    tell(errand.stages, std::move(answer->stages), sink);
  }
}

void Stager::dispatch(Instant now, EventSink& sink) {
  for (node::Event& answer : std::exchange(answers_, {})) sink(std::move(answer));
  for (auto worker = workers_.begin(); worker != workers_.end();) {
    char done = 0;
    const ssize_t received = ::recv(worker->socket.get(), &done, sizeof done, MSG_DONTWAIT);
    if (received == sizeof done && worker->errand) finish(*std::exchange(worker->errand, {}), {}, sink);
    if (received == 0) worker->socket.reset();                        // it is ending, and may hang in that
    if (const std::optional<int> status = reap_group(worker->pid)) {  // with helpers that it may have left
      std::optional<Errand> unfinished = std::move(worker->errand);
      worker = workers_.erase(worker);
      if (unfinished && !repeat(*unfinished)) finish(std::move(*unfinished), status, sink);
      continue;
    }
    if (worker->errand && !worker->errand->late && now >= worker->errand->give_up) {
      worker->errand->late = true;
      ::kill(-worker->pid, SIGKILL);
    }
    ++worker;
  }
  start_errands(now, sink);
  work_.set(!answers_.empty() || can_start());
}

}  // namespace dtrain::proc
