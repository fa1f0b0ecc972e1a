#include "agent/proc/shim_runner.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>

#include "agent/account/host_user.h"
#include "agent/base/boot_clock.h"
#include "agent/base/small_file.h"
#include "agent/proc/assignment_dir.h"
#include "agent/proc/direct_launcher.h"
#include "agent/proc/launch_plan.h"
#include "agent/proc/launchers.h"
#include "agent/proc/shm_watch.h"
#include "agent/proc/spare_shims.h"
#include "agent/proc/stage_work.h"
#include "agent/proc/standbys.h"
#include "agent/proc/systemd_launcher.h"
#include "agent/proc/task_of_process.h"
#include "agent/proc/tracked_shim.h"
#include "common/job/warm.h"

namespace dtrain::proc {

namespace {

constexpr Duration kListBound = 2s;  // for living shims to answer, and for leftovers of dead ones to die
constexpr Duration kListPause = 2ms;
constexpr int kShimEventsPerTurn = 64;
constexpr std::uint64_t kWakeTag = 0, kLauncherTag = 1, kShmTag = 2;  // handles count from 1, and each has TrackedShim::kTags tags
static_assert(kShmTag < TrackedShim::kTags);
class ShimRunner final : public Runner {
 public:
  explicit ShimRunner(RunnerOptions options)
      : options_(std::move(options)),
        standbys_(options_, launchers_, poller_, [this](node::StandbyReport report) { events_.push_back(std::move(report)); }) {
    poller_.add(wake_.fd(), kWakeTag);
    if (shm_.fd() >= 0) poller_.add(shm_.fd(), kShmTag);
  }

  // To be called before anything else.
  Status use(const std::vector<MakeLauncher>& makers) {
    for (const MakeLauncher& make : makers) {
      auto launcher = make(options_, poller_, kLauncherTag);
      if (!launcher) return fail(launcher.error());
      launchers_.add(std::move(*launcher));
    }
    return {};
  }

  std::vector<task::FoundShim> list() override;
  void launch(const task::ShimSpec& spec) override;
  void start(const AssignmentId& id, AttemptNumber attempt) override;
  void signal(const node::SignalTask& order) override;
  void kill(const AssignmentId& id) override;
  void freeze(const AssignmentId& id, bool freeze) override;
  void answer_lease(const node::AnswerLease& answer) override;
  void require_lease(const node::RequireLease& demand) override;
  void end(const AssignmentId& id) override;
  void remove_files(const AssignmentId& id) override;
  Status run_beside(const AssignmentId& id, const Program& program) override;
  std::optional<AssignmentId> task_of(pid_t process) const override;
  int fd() const override { return poller_.fd(); }
  Instant deadline() const override;
  void dispatch(EventSink& sink) override;

 private:
  std::string directory_of(const AssignmentId& id) const { return options_.tasks_dir + "/" + id.text(); }
  TrackedShim* find(const AssignmentId& id);
  TrackedShim& track(const AssignmentId& id);
  Status try_launch(const task::ShimSpec& spec, TrackedShim& shim, Launcher& launcher);
  Status begin(const task::ShimSpec& spec, const LaunchFile& launch, TrackedShim& shim, Launcher& launcher);
  bool launch_warm(const task::ShimSpec& spec, LaunchFile launch, TrackedShim& shim);
  bool start_warm(TrackedShim& shim, AttemptNumber attempt);
  bool of_swap(const node::Event& event);
  void refuse_swap(const AssignmentId& id, const Error& error);
  void settle(const TrackedShim& shim, int pid);
  void poll_once();
  void pass_time();
  void enforce_leases();
  void wake();
  void launch_next();
  void ask_launchers();
  void note_made();
  void remove_made(const TrackedShim& shim);
  void forget_if_gone(const AssignmentId& id);

  RunnerOptions options_;
  Epoll poller_;
  Launchers launchers_;
  WorkFlag wake_;  // readable while events_ holds something that no descriptor announces
  TrackedShim::Events events_;
  SpareShims spare_;
  ShmWatch shm_;
  Standbys standbys_;
  // The next attempt of an assignment begins in its standby: the shim of the one before ends, and the standby's takes its place. For
  // whoever ordered the start it is one like any other.
  struct Swap {
    AttemptNumber attempt = 0;
    task::ShimSpec spec;
    bool launched = false;  // the earlier shim is gone
  };
  std::map<AssignmentId, Swap> swaps_;
  std::uint64_t last_handle_ = 0;
  std::map<AssignmentId, std::uint64_t> handles_;
  std::map<std::uint64_t, TrackedShim> shims_;
};

TrackedShim* ShimRunner::find(const AssignmentId& id) {
  const auto found = handles_.find(id);
  return found == handles_.end() ? nullptr : &shims_.at(found->second);
}

TrackedShim& ShimRunner::track(const AssignmentId& id) {
  if (TrackedShim* known = find(id)) return *known;
  handles_[id] = ++last_handle_;
  return shims_.try_emplace(last_handle_, id, directory_of(id), last_handle_, poller_, spare_, events_).first->second;
}

// ---------------------------------------------------------------- launching

Status ShimRunner::try_launch(const task::ShimSpec& spec, TrackedShim& shim, Launcher& launcher) {
  const auto is_new = make_passable_directory(shim.directory());
  if (!is_new) return fail(is_new.error());
  auto launch = plan_launch(options_, spec, shim.directory(), shim.last_attempt(), *is_new);
  if (!launch) return fail(launch.error());
  if (launch_warm(spec, *launch, shim)) return {};
  if (const Status placed = launcher.place(spec, spec.id.text(), *launch); !placed) return placed;
  standbys_.launched(spec, *launch);
  if (const Status begun = begin(spec, *launch, shim, launcher); !begun) {
    cgroup_remove({launch->cgroup, launch->memory_cgroup});
    return begun;
  }
  return {};
}

// In the place of its standby, which serves it. False: there is none.
bool ShimRunner::launch_warm(const task::ShimSpec& spec, LaunchFile launch, TrackedShim& shim) {
  const LaunchFile* const standby = standbys_.waits_for(spec);
  if (standby == nullptr) return false;
  launch.cgroup = standby->cgroup;
  launch.memory_cgroup = standby->memory_cgroup;
  launch.is_unit = standby->is_unit;
  launch.stop_signal = standby->stop_signal;
  launch.target = job::python_target(spec.argv);
  const auto bytes = encode_launch(launch);
  if (!bytes || !replace_file(shim.directory() + "/" + shim::kLaunchFile, *bytes)) return false;
  auto process = standbys_.take(spec.id, shim.directory(), boot_now());
  if (!process) return false;
  shim.launched(std::move(*process), launch, boot_now());
  standbys_.launched(spec, launch);
  return true;
}

Status ShimRunner::begin(const task::ShimSpec& spec, const LaunchFile& launch, TrackedShim& shim, Launcher& launcher) {
  const auto bytes = encode_launch(launch);
  if (!bytes) return fail(bytes.error());
  if (const Status written = replace_file(shim.directory() + "/" + shim::kLaunchFile, *bytes); !written) return written;
  if (auto spare = launcher.takes_spares() ? spare_.take(shim.directory(), boot_now()) : std::nullopt) {
    shim.launched(std::move(*spare), launch, boot_now());
    return {};
  }
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return fail(ErrorCode::io, "could not launch " + spec.id.text() + ": no socket: " + cause_of(errno),
                "raise the agent's limit of open files");
  UniqueFd ours(pair[0]), theirs(pair[1]);
  auto process = launcher.launch(spec, shim.directory(), launch, std::move(theirs));
  if (!process) return fail(process.error());
  const std::size_t path_room = *process ? shim.directory().size() + shim::kPathRoom : 0;
  shim.launched({std::move(ours), std::move(*process), path_room}, launch, boot_now());
  return {};
}

void ShimRunner::launch(const task::ShimSpec& spec) {
  TrackedShim& shim = track(spec.id);
  if (shim.up()) {
    events_.push_back(node::ShimUp{spec.id, {}});
  } else if (!shim.gone()) {
    shim.launch_refused(
        Error{ErrorCode::unavailable, "could not launch the shim of " + spec.id.text() + ": another one is starting or ending", ""});
  } else if (const Status waits = launchers_.wait(spec); !waits) {
    shim.launch_refused(waits.error());
  }
  wake();
}

void ShimRunner::launch_next() {
  for (const auto& [spec, launcher] : launchers_.next()) {
    TrackedShim& shim = track(spec.id);
    if (!shim.gone()) continue;  // ordered twice: the first order is in progress
    if (const Status launched = try_launch(spec, shim, launcher); !launched) shim.launch_refused(launched.error());
  }
}

// `pid`: of the shim that came up; 0: it must not come any more.
void ShimRunner::settle(const TrackedShim& shim, int pid) {
  if (Launcher* launcher = launchers_.that_started(shim.launch_file())) launcher->settled(shim.launch_file(), pid);
}

// The ledger may know ten thousand finished tasks; only those with a shim are here.
void ShimRunner::forget_if_gone(const AssignmentId& id) {
  const auto handle = handles_.find(id);
  if (handle == handles_.end() || !shims_.at(handle->second).gone()) return;
  if (launchers_.waits(id)) return;
  shims_.erase(handle->second);
  handles_.erase(handle);
}

// ---------------------------------------------------------------- commands

void ShimRunner::start(const AssignmentId& id, AttemptNumber attempt) {
  if (TrackedShim* shim = find(id)) {
    if (!start_warm(*shim, attempt)) shim->start(attempt);
  } else {
    events_.push_back(node::AttemptRefused{
        id, attempt, Error{ErrorCode::not_found, "could not start " + id.text() + ": it was never launched here", ""}});
  }
  wake();
}

bool ShimRunner::start_warm(TrackedShim& shim, AttemptNumber attempt) {
  if (swaps_.contains(shim.id())) return true;
  const task::ShimSpec* const spec = standbys_.ready_for(shim.id());
  if (spec == nullptr || !shim.has_ended_all() || attempt <= shim.last_attempt()) return false;
  swaps_[shim.id()] = {attempt, *spec};
  shim.end(boot_now());
  return true;
}

void ShimRunner::refuse_swap(const AssignmentId& id, const Error& error) {
  const auto swap = swaps_.find(id);
  if (swap == swaps_.end()) return;
  events_.push_back(node::AttemptRefused{id, swap->second.attempt, error});
  swaps_.erase(swap);
}

// True if nobody else is told of the event.
bool ShimRunner::of_swap(const node::Event& event) {
  const auto* gone = std::get_if<node::ShimGone>(&event);
  const auto* up = std::get_if<node::ShimUp>(&event);
  const auto swap = gone != nullptr ? swaps_.find(gone->id) : up != nullptr ? swaps_.find(up->id) : swaps_.end();
  if (swap == swaps_.end()) return false;
  const AssignmentId id = swap->first;
  const auto failed = [&](const Error& error) {
    events_.push_back(node::ShimGone{id, false});
    refuse_swap(id, error);
    return true;
  };
  if (gone != nullptr) {
    const Error died{ErrorCode::unavailable,
                     "could not start attempt " + std::to_string(swap->second.attempt) + " of " + id.text() + ": its shim died", ""};
    if (swap->second.launched) return failed(died);
    swap->second.launched = true;
    Launcher* const launcher = launchers_.that_started(track(id).launch_file());
    const Status launched = launcher == nullptr ? Status(fail(died)) : try_launch(swap->second.spec, track(id), *launcher);
    return launched ? true : failed(launched.error());
  }
  if (!up->result) return failed(up->result.error());
  if (TrackedShim* shim = find(id)) shim->start(swap->second.attempt);
  swaps_.erase(id);
  return true;
}

void ShimRunner::signal(const node::SignalTask& order) {
  if (TrackedShim* shim = find(order.id)) shim->signal(order);
}

void ShimRunner::kill(const AssignmentId& id) {
  if (TrackedShim* shim = find(id)) shim->kill(boot_now());
}

void ShimRunner::freeze(const AssignmentId& id, bool freeze) {
  if (TrackedShim* shim = find(id)) {
    shim->freeze(freeze);
  } else {
    events_.push_back(
        node::FreezeDone{id, false, fail(ErrorCode::not_found, "could not freeze or thaw " + id.text() + ": it was never launched here")});
  }
  wake();
}

void ShimRunner::answer_lease(const node::AnswerLease& answer) {
  if (TrackedShim* shim = find(answer.id)) shim->answer_lease(answer, boot_now());
}

void ShimRunner::require_lease(const node::RequireLease& demand) {
  std::uint64_t nonce = 0;
  if (::getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce)) return;  // Node asks for it again
  if (TrackedShim* shim = find(demand.id)) shim->require_lease(demand, nonce);
}

void ShimRunner::end(const AssignmentId& id) {
  launchers_.forget(id);
  refuse_swap(id, Error{ErrorCode::unavailable, "could not start " + id.text() + ": it is being ended", ""});
  if (TrackedShim* shim = find(id)) shim->end(boot_now());
  else events_.push_back(node::ShimGone{id, true});
  wake();
}

void ShimRunner::remove_files(const AssignmentId& id) {
  if (TrackedShim* shim = find(id)) {
    if (!shim->gone()) return;  // its files are in use: EndShim must come first
    shims_.erase(handles_.at(id));
    handles_.erase(id);
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory_of(id), ignored);
}

Status ShimRunner::run_beside(const AssignmentId& id, const Program& program) {
  if (TrackedShim* shim = find(id)) return shim->run(program);
  return fail(ErrorCode::unavailable, "could not launch a program in " + id.text() + ": it is not here",
              "dtrainctl tasks shows where it is");
}

std::optional<AssignmentId> ShimRunner::task_of(pid_t process) const {
  std::map<pid_t, const TrackedShim*> shims;
  for (const auto& [handle, shim] : shims_)
    if (shim.up() && shim.shim_pid() > 0) shims[shim.shim_pid()] = &shim;
  const auto found = ancestor_of(process, [&](pid_t one) { return shims.contains(one); });
  return found ? std::optional(shims.at(*found)->id()) : std::nullopt;
}

// ---------------------------------------------------------------- what happens

// All living shims are asked first and then waited for together.
std::vector<task::FoundShim> ShimRunner::list() {
  const Instant begin = boot_now();
  for (const AssignmentId& id : list_assignments(options_.tasks_dir)) {
    TrackedShim& shim = track(id);
    if (!shim.gone()) continue;
    auto launch = read_launch(shim.directory());
    shim.adopt(launch ? *launch : LaunchFile{}, begin);
  }
  const auto unsettled = [&] {
    return std::any_of(shims_.begin(), shims_.end(), [](const auto& entry) { return !entry.second.settled(); });
  };
  while (unsettled() && boot_now() < begin + kListBound) {
    pollfd wait{poller_.fd(), POLLIN, 0};
    ::poll(&wait, 1, static_cast<int>(std::chrono::milliseconds(kListPause / 1ms).count()));
    enforce_leases();
    poll_once();
    pass_time();
  }
  std::vector<task::FoundShim> found;
  for (const auto& [id, handle] : handles_) {
    TrackedShim& shim = shims_.at(handle);
    found.push_back(shim.found());
    if (found.back().exit) remove_made(shim);
    if (found.back().running) standbys_.adopted(id, shim.directory(), shim.launch_file(), handle, begin);
    // An earlier agent may have ordered it just before it ended.
    if (!found.back().shim_alive && launch_came_to_nothing(shim.directory())) settle(shim, 0);
  }
  std::vector<std::string> in_use;
  for (const auto& [handle, shim] : shims_) in_use.push_back(shim.launch_file().cgroup);
  standbys_.clear(in_use);
  for (const auto& shim : found) forget_if_gone(shim.id);
  wake();
  return found;
}

void ShimRunner::wake() {
  if (!events_.empty() || launchers_.can_launch()) wake_.set(true);
}

void ShimRunner::poll_once() {
  epoll_event ready[kShimEventsPerTurn];
  for (const epoll_event& event : poller_.ready(ready)) {
    const std::uint64_t tag = event.data.u64;
    if (tag == kLauncherTag) {
      ask_launchers();
      continue;
    }
    if (tag % TrackedShim::kTags == TrackedShim::kStandbyTag) {
      standbys_.ready(tag / TrackedShim::kTags, boot_now());
      continue;
    }
    const auto shim = shims_.find(tag / TrackedShim::kTags);
    if (shim == shims_.end()) continue;
    if (tag % TrackedShim::kTags == TrackedShim::kSocketTag) shim->second.socket_ready(boot_now());
    else shim->second.process_ended(boot_now());
  }
}

void ShimRunner::enforce_leases() {
  const Instant now = boot_now();
  for (auto& [handle, shim] : shims_) shim.enforce_lease(now);
}

void ShimRunner::ask_launchers() {
  launchers_.dispatch([this](const AssignmentId& id, const std::string& cgroup, std::optional<Error> refusal) {
    if (standbys_.answered(cgroup, refusal, boot_now())) return;
    TrackedShim* shim = find(id);
    if (shim != nullptr && shim->launch_file().cgroup == cgroup) shim->launch_answered(std::move(refusal), boot_now());
  });
}

void ShimRunner::note_made() {
  if (!shm_.has_news()) return;
  std::vector<ShmWatch::Task> tasks;
  for (const auto& [handle, shim] : shims_)
    tasks.push_back({shim.id(), shim.launch_file().uid, shim.lives() ? shim.shim_pid() : 0, shim.main_pid()});
  shm_.note(options_.tasks_dir, tasks);
}

void ShimRunner::remove_made(const TrackedShim& shim) {
  const LaunchFile& launch = shim.launch_file();
  shm_.remove(shim.directory(), account::HostUser{launch.uid, launch.gid, launch.groups});
}

void ShimRunner::pass_time() {
  const Instant now = boot_now();
  if (now >= launchers_.deadline()) ask_launchers();
  spare_.pass_time(now);
  standbys_.pass_time(now);
  for (auto& [handle, shim] : shims_) shim.time_passed(now);
}

Instant ShimRunner::deadline() const {
  Instant first = std::min({launchers_.deadline(), spare_.deadline(), standbys_.deadline()});
  for (const auto& [handle, shim] : shims_) first = std::min(first, shim.deadline());
  return first;
}

void ShimRunner::dispatch(EventSink& sink) {
  enforce_leases();
  poll_once();
  pass_time();
  wake_.set(false);
  note_made();
  launch_next();
  // The sink may call back into this runner; what that adds is announced through wake_.
  TrackedShim::Events now;
  now.swap(events_);
  std::vector<AssignmentId> ended;
  TrackedShim::Events told;
  for (node::Event& event : now) {
    if (const auto* gone = std::get_if<node::ShimGone>(&event)) {
      if (of_swap(event)) continue;
      ended.push_back(gone->id);
      standbys_.gone(gone->id, boot_now());
    }
    if (const auto* exited = std::get_if<node::AttemptExited>(&event)) {
      if (const TrackedShim* shim = find(exited->id)) remove_made(*shim);
      standbys_.exited(exited->id, exited->exit.success(), boot_now());
    }
    if (const auto* started = std::get_if<node::AttemptStarted>(&event)) {
      if (const TrackedShim* shim = find(started->id))
        if (Launcher* launcher = launchers_.that_started(shim->launch_file())) launcher->began(shim->launch_file(), started->pid);
      standbys_.started(started->id, handles_.contains(started->id) ? handles_.at(started->id) : 0, boot_now());
    }
    if (const auto* up = std::get_if<node::ShimUp>(&event)) {
      if (!up->result) ended.push_back(up->id);
      // Refused because another one is being launched: the other one is not refused.
      if (const TrackedShim* shim = find(up->id); shim != nullptr && (up->result || shim->gone()))
        settle(*shim, up->result ? shim->shim_pid() : 0);
      if (of_swap(event)) continue;
    }
    told.push_back(std::move(event));
  }
  for (node::Event& event : told) sink(std::move(event));
  for (const AssignmentId& id : ended) forget_if_gone(id);
  wake();
}

}  // namespace

namespace {

Status usable(const RunnerOptions& options) {
  for (const auto& [name, value] : options.ulimits)
    if (limit_resources().count(name) == 0)
      return fail(ErrorCode::invalid, "could not use tasks.ulimits: there is no limit named " + name,
                  "use as, core, cpu, data, fsize, memlock, nofile, nproc or stack");
  if (options.tasks_dir.empty() || options.tasks_dir[0] != '/')
    return fail(ErrorCode::invalid, "could not use tasks directory '" + options.tasks_dir + "': it must be absolute");
  if (::access(options.shim_path.c_str(), X_OK) != 0)
    return fail(ErrorCode::not_found, "could not use " + options.shim_path + ": " + cause_of(errno), "install dtrain-shim beside dtraind");
  const auto made = make_passable_directory(options.tasks_dir);
  return made ? Status() : fail(made.error());
}

}  // namespace

Result<std::unique_ptr<Runner>> make_runner(RunnerOptions options, const std::vector<MakeLauncher>& launchers) {
  if (const Status checked = usable(options); !checked) return fail(checked.error());
  auto runner = std::make_unique<ShimRunner>(std::move(options));
  if (const Status used = runner->use(launchers); !used) return fail(used.error());
  return std::unique_ptr<Runner>(std::move(runner));
}

}  // namespace dtrain::proc
