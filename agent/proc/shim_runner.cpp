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
#include "agent/proc/launchers.h"
#include "agent/proc/shm_watch.h"
#include "agent/proc/spare_shims.h"
#include "agent/proc/stage_work.h"
#include "agent/proc/systemd_launcher.h"
#include "agent/proc/tracked_shim.h"

namespace dtrain::proc {

namespace {

constexpr Duration kListBound = 2s;  // for living shims to answer, and for leftovers of dead ones to die
constexpr Duration kListPause = 2ms;
constexpr int kShimEventsPerTurn = 64;
constexpr std::uint64_t kWakeTag = 0, kLauncherTag = 1, kShmTag = 2;  // handles count from 1, and each has TrackedShim::kTags tags
static_assert(kShmTag < TrackedShim::kTags);
constexpr std::size_t kSocketPathBytes = 107;
constexpr std::size_t kTemporaryPathBytes = kSocketPathBytes - 40;  // Python's multiprocessing makes sockets of 32 more in it
constexpr const char* kDefaultShell = "/bin/sh";                    // as passwd(5) says of an entry without one

const std::map<std::string, int>& resources() {
  static const std::map<std::string, int> names = {{"as", RLIMIT_AS},         {"core", RLIMIT_CORE},   {"cpu", RLIMIT_CPU},
                                                   {"data", RLIMIT_DATA},     {"fsize", RLIMIT_FSIZE}, {"memlock", RLIMIT_MEMLOCK},
                                                   {"nofile", RLIMIT_NOFILE}, {"nproc", RLIMIT_NPROC}, {"stack", RLIMIT_STACK}};
  return names;
}

std::string hex(std::uint64_t number) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text.push_back(kDigits[number >> shift & 15]);
  return text;
}

class ShimRunner final : public Runner {
 public:
  explicit ShimRunner(RunnerOptions options) : options_(std::move(options)) {
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
  int fd() const override { return poller_.fd(); }
  Instant deadline() const override;
  void dispatch(EventSink& sink) override;

 private:
  std::string directory_of(const AssignmentId& id) const { return options_.tasks_dir + "/" + id.text(); }
  TrackedShim* find(const AssignmentId& id);
  TrackedShim& track(const AssignmentId& id);
  Status try_launch(const task::ShimSpec& spec, TrackedShim& shim, Launcher& launcher);
  Status begin(const task::ShimSpec& spec, const LaunchFile& launch, TrackedShim& shim, Launcher& launcher);
  Result<LaunchFile> plan(const task::ShimSpec& spec, const TrackedShim& shim, Launcher& launcher, bool directory_is_new);
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

Result<LaunchFile> ShimRunner::plan(const task::ShimSpec& spec, const TrackedShim& shim, Launcher& launcher, bool directory_is_new) {
  LaunchFile launch;
  const auto user = account::find_user(spec.user);
  if (!user) return fail(user.error());
  launch.agent_uid = ::geteuid();
  if (launch.agent_uid != 0 && user->uid != launch.agent_uid)
    return fail(ErrorCode::refused, "could not launch " + spec.id.text() + ": only an agent of root can run tasks of another user",
                "run dtraind as root, or submit as its own user");
  launch.switch_user = launch.agent_uid == 0;
  launch.uid = user->uid;
  launch.gid = user->gid;
  launch.groups = user->groups;
  launch.argv = spec.argv;
  launch.env = spec.env;
  launch.ranks = spec.ranks;
  if (!spec.ranks.empty())  // one variable of that name alone
    for (const auto& [name, value] : spec.ranks.front()) launch.env.erase(name);
  launch.work_dir = spec.work_dir;
  // Variables that only this host knows. Those of the job or of tasks.passEnv are there already, and win.
  launch.env.try_emplace("HOME", user->home.empty() ? spec.work_dir : user->home);
  launch.env.try_emplace("SHELL", user->shell.empty() ? kDefaultShell : user->shell);
  const std::string temporary = job_temporary(options_.work_root, spec.id.job);
  if (!options_.work_root.empty() && temporary.size() <= kTemporaryPathBytes && ::access(temporary.c_str(), F_OK) == 0)
    launch.env.try_emplace("TMPDIR", temporary);
  for (const char* name : {"USER", "LOGNAME"})
    if (!user->name.empty()) launch.env.try_emplace(name, user->name);
  launch.notify = shim.directory() + "/notify";
  if (launch.notify.size() > kSocketPathBytes || (launch.switch_user && !account::can_reach(*user, launch.notify))) {
    std::uint64_t random = 0;
    if (::getrandom(&random, sizeof(random), 0) != sizeof(random))
      return fail(ErrorCode::io, "could not launch " + spec.id.text() + ": no randomness: " + cause_of(errno));
    launch.notify = "@dtrain/" + hex(random);
  }
  if (const Status placed = launcher.place(spec, launch); !placed) return fail(placed.error());
  launch.signal_main = spec.signal_to == job::SignalTo::main;
  launch.stop_grace = spec.stop_grace;
  launch.lease = spec.lease;
  launch.epoch = spec.epoch;
  if (spec.lease > Duration{0} && ::getrandom(&launch.first_nonce, sizeof(launch.first_nonce), 0) != sizeof(launch.first_nonce))
    return fail(ErrorCode::io, "could not launch " + spec.id.text() + ": no randomness: " + cause_of(errno));
  launch.address = spec.address;
  launch.port = spec.port;
  launch.cpus = spec.cpus;
  launch.numa_node = spec.numa_node;
  launch.last_attempt = shim.last_attempt();
  if (!directory_is_new) {
    // It may have been started by an earlier agent without list() seeing it.
    if (const auto state = read_record(shim.directory(), "state"))
      launch.last_attempt = std::max(launch.last_attempt, state->fixed.attempt);
    launch.first_log = next_log_number(shim.directory());
  }
  launch.log_files = options_.log_files;
  launch.log_file_bytes = options_.log_file_bytes;
  for (const auto& [name, value] : options_.ulimits) launch.rlimits.emplace_back(resources().at(name), value);
  return launch;
}

Status ShimRunner::try_launch(const task::ShimSpec& spec, TrackedShim& shim, Launcher& launcher) {
  const auto is_new = make_passable_directory(shim.directory());
  if (!is_new) return fail(is_new.error());
  const auto launch = plan(spec, shim, launcher, *is_new);
  if (!launch) return fail(launch.error());
  if (const Status begun = begin(spec, *launch, shim, launcher); !begun) {
    cgroup_remove({launch->cgroup, launch->memory_cgroup});
    return begun;
  }
  return {};
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
    shim->start(attempt);
  } else {
    events_.push_back(node::AttemptRefused{
        id, attempt, Error{ErrorCode::not_found, "could not start " + id.text() + ": it was never launched here", ""}});
  }
  wake();
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
    // An earlier agent may have ordered it just before it ended.
    if (!found.back().shim_alive && launch_came_to_nothing(shim.directory())) settle(shim, 0);
  }
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
  for (auto& [handle, shim] : shims_) shim.time_passed(now);
}

Instant ShimRunner::deadline() const {
  Instant first = std::min(launchers_.deadline(), spare_.deadline());
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
  for (const node::Event& event : now) {
    if (const auto* gone = std::get_if<node::ShimGone>(&event)) ended.push_back(gone->id);
    if (const auto* exited = std::get_if<node::AttemptExited>(&event))
      if (const TrackedShim* shim = find(exited->id)) remove_made(*shim);
    if (const auto* started = std::get_if<node::AttemptStarted>(&event))
      if (const TrackedShim* shim = find(started->id))
        if (Launcher* launcher = launchers_.that_started(shim->launch_file())) launcher->began(shim->launch_file(), started->pid);
    if (const auto* up = std::get_if<node::ShimUp>(&event)) {
      if (!up->result) ended.push_back(up->id);
      // Refused because another one is being launched: the other one is not refused.
      if (const TrackedShim* shim = find(up->id); shim != nullptr && (up->result || shim->gone()))
        settle(*shim, up->result ? shim->shim_pid() : 0);
    }
  }
  for (node::Event& event : now) sink(std::move(event));
  for (const AssignmentId& id : ended) forget_if_gone(id);
  wake();
}

}  // namespace

namespace {

Status usable(const RunnerOptions& options) {
  for (const auto& [name, value] : options.ulimits)
    if (resources().count(name) == 0)
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

bool systemd_is_here() {
  return ::geteuid() == 0 && ::access("/run/systemd/system", F_OK) == 0;  // sd_booted(3)
}

Result<std::unique_ptr<Launcher>> direct_launcher(const RunnerOptions& options, Epoll&, std::uint64_t) {
  const std::string name = cgroup_name_of(options.tasks_dir);
  if (name.empty()) return fail(ErrorCode::io, "could not use " + options.tasks_dir + ": " + cause_of(errno));
  Cgroups cgroups = Cgroups::open(options.cgroup, name);
  if (options.warn && cgroups.unusable()) options.warn(*cgroups.unusable());
  return make_direct_launcher(options.shim_path, std::move(cgroups), options.warn);
}

Result<std::unique_ptr<Launcher>> systemd_launcher(const RunnerOptions& options, Epoll& poller, std::uint64_t tag) {
  if (!systemd_is_here())
    return fail(ErrorCode::unavailable, "could not launch tasks through systemd: it is not PID 1 here, or the agent is not root's",
                "use tasks.launch: direct (or auto)");
  return make_systemd_launcher(options, poller, tag);
}

Result<std::unique_ptr<Runner>> make_runner(RunnerOptions options, const std::vector<MakeLauncher>& launchers) {
  if (const Status checked = usable(options); !checked) return fail(checked.error());
  auto runner = std::make_unique<ShimRunner>(std::move(options));
  if (const Status used = runner->use(launchers); !used) return fail(used.error());
  return std::unique_ptr<Runner>(std::move(runner));
}

}  // namespace dtrain::proc
