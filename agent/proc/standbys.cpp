#include "agent/proc/standbys.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>

#include "agent/base/small_file.h"
#include "agent/dtrain-shim/protocol.h"
#include "agent/proc/assignment_dir.h"
#include "agent/proc/cgroup.h"
#include "agent/proc/tracked_shim.h"
#include "common/job/warm.h"
#include "common/wire/codec.h"

namespace dtrain::proc {

namespace {

constexpr const char* kDirectoryPrefix = "standby.";  // below tasks_dir, followed by AssignmentId::text() and what tells its standbys apart
constexpr Duration kFirstBuryPause = 2ms, kLastBuryPause = 1s;
constexpr int kStandbyPackets = 16;
constexpr const char* kSpecFile = "standby_spec";  // in an assignment's directory: what the next agent begins a standby from
constexpr std::size_t kSpecBytes = 8 << 20;

task::StandbyPlan::Key key_of(const AssignmentId& id) { return {id.job, id.task}; }

// Bytes that could be had without swapping; nullopt: not known.
std::optional<std::uint64_t> available_on_host() {
  std::istringstream lines(read_small_file("/proc/meminfo").value_or(""));
  std::string name;
  std::uint64_t kib = 0;
  for (std::string line; std::getline(lines, line);)
    if (std::istringstream words(line); words >> name >> kib && name == "MemAvailable:") return kib << 10;
  return std::nullopt;
}

// The same for what is to wait beside such a task, in the same groups: of a container, or of all tasks (dtrain.slice).
std::optional<std::uint64_t> available_beside(const LaunchFile& task) {
  auto least = available_on_host();
  const ProcessCgroups agent("self");  // whose groups a task shares where it has none
  const auto group = [&](const std::string& of_task, const char* controller) {
    return of_task.empty() ? agent.in(controller).value_or("") : of_task.substr(0, of_task.rfind('/'));
  };
  for (const std::string& directory : {group(task.cgroup, ""), group(task.memory_cgroup, "memory")})
    if (const auto left = memory_left(directory)) least = std::min(least.value_or(*left), *left);
  return least;
}

// Whether what was prepared for the one can run the other: interpreter, options and target, user, and the place on the host.
bool is_alike(const task::ShimSpec& one, const task::ShimSpec& other) {
  const std::uint32_t target = job::python_target(one.argv);
  if (target == 0 || target != job::python_target(other.argv)) return false;
  const std::size_t same = std::min(one.argv.size(), std::size_t{target} + (one.argv[target] == "-m" ? 2 : 1));
  return other.argv.size() >= same &&
         std::equal(one.argv.begin(), one.argv.begin() + static_cast<std::ptrdiff_t>(same), other.argv.begin()) && one.warm == other.warm &&
         one.user.name == other.user.name && one.user.uid == other.user.uid && one.ranks.size() == other.ranks.size() &&
         one.memory_bytes == other.memory_bytes && one.cpu_millis == other.cpu_millis && one.cpus == other.cpus &&
         one.numa_node == other.numa_node && one.own_gpus == other.own_gpus;
}

}  // namespace

void Standbys::clear(const std::vector<std::string>& in_use) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(options_.tasks_dir, error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().string().starts_with(kDirectoryPrefix)) continue;
    Ending ending;
    ending.directory = at->path().string();
    if (const auto launch = read_launch(ending.directory)) ending.launch = *launch;
    // One that serves an assignment has left this directory and keeps its cgroup.
    if (std::ranges::count(in_use, ending.launch.cgroup) > 0) ending.launch.cgroup.clear();
    ending_.push_back(std::move(ending));
  }
}

Standbys::Entry* Standbys::find(const AssignmentId& id) {
  const auto found = entries_.find({id.job, id.task});
  return found != entries_.end() && found->second.spec.id == id ? &found->second : nullptr;
}

// ---------------------------------------------------------------- assignments

void Standbys::launched(const task::ShimSpec& spec, const LaunchFile& launch) {
  const Key key{spec.id.job, spec.id.task};
  if (const auto old = entries_.find(key); old != entries_.end()) {
    end(old->second, Instant{});
    entries_.erase(old);
  }
  plan_.erase(key);
  if (options_.warm_path.empty() || spec.warm.empty() || job::python_target(spec.argv) == 0) return;
  // The processes of such a task are found by their first environment, which would be another's.
  if (launch.cgroup.empty()) return report_({spec.id, node::StandbyReport::News::failed, "tasks of this agent have no control group"});
  Entry& entry = entries_[key];
  entry.spec = spec;
  entry.task = launch;
  plan_.add(key, launch.uid);
}

void Standbys::adopted(const AssignmentId& id, const std::string& directory, const LaunchFile& launch, std::uint64_t handle, Instant now) {
  const auto bytes = read_small_file(directory + "/" + kSpecFile, kSpecBytes);
  if (!bytes || find(id) != nullptr) return;
  const auto spec = wire::decode<task::ShimSpec>(*bytes);
  if (!spec || spec->id != id) return;
  launched(*spec, launch);
  started(id, handle, now);
}

void Standbys::started(const AssignmentId& id, std::uint64_t handle, Instant now) {
  Entry* entry = find(id);
  if (entry == nullptr) return;
  entry->handle = handle;
  plan_.attempt_started(key_of(id), now);
}

void Standbys::exited(const AssignmentId& id, bool success, Instant now) {
  Entry* entry = find(id);
  if (entry != nullptr && plan_.attempt_ended(key_of(id), success)) end(*entry, now);
}

void Standbys::gone(const AssignmentId& id, Instant now) {
  if (find(id) != nullptr) plan_.assignment_over(key_of(id), now);
}

const task::ShimSpec* Standbys::ready_for(const AssignmentId& id) {
  const Entry* entry = find(id);
  return entry != nullptr && entry->state == State::waits ? &entry->spec : nullptr;
}

const LaunchFile* Standbys::waits_for(const task::ShimSpec& spec) const {
  const auto found = entries_.find({spec.id.job, spec.id.task});
  if (found == entries_.end() || found->second.state != State::waits || !is_alike(found->second.spec, spec)) return nullptr;
  return &found->second.launch;
}

std::optional<ShimProcess> Standbys::take(const AssignmentId& id, const std::string& directory, Instant now) {
  Entry& entry = entries_.at({id.job, id.task});
  poller_.remove(entry.process.pidfd.get());
  // systemd keeps its end of a dead shim's connection for a while, so the message would seem to arrive.
  if (directory.size() <= entry.directory.size() && !is_dead(entry.process.pidfd) && serve(entry.process.socket, directory)) {
    std::error_code ignored;
    std::filesystem::remove_all(entry.directory, ignored);
    entry.state = State::none;
    plan_.used(key_of(id));
    return std::move(entry.process);
  }
  fail(entry, "it is gone", now);
  return std::nullopt;
}

// ---------------------------------------------------------------- a standby

// As the task, but for what is an assignment's alone.
Status Standbys::start(Entry& entry, Instant now) {
  Launcher* const launcher = launchers_.that_started(entry.task);
  if (launcher == nullptr) return dtrain::fail(ErrorCode::unavailable, "its launcher is gone");
  if (!launcher->has_room()) {
    plan_.not_now(key_of(entry.spec.id), now);
    return {};
  }
  // For the next agent, and not needed otherwise.
  (void)replace_file(options_.tasks_dir + "/" + entry.spec.id.text() + "/" + kSpecFile, wire::encode(entry.spec));
  // The assignment may run in an earlier standby's place, also one that an earlier agent made.
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) return dtrain::fail(ErrorCode::io, "no randomness: " + cause_of(errno));
  const std::string name = kDirectoryPrefix + entry.spec.id.text() + "." + std::to_string(random);
  entry.directory = options_.tasks_dir + "/" + name;
  if (const auto made = make_passable_directory(entry.directory); !made) return dtrain::fail(made.error());
  LaunchFile& launch = entry.launch = entry.task;
  launch.notify = "@dtrain/standby-" + std::to_string(random);
  launch.argv = job::warm_argv(entry.spec.argv, entry.spec.warm, options_.warm_path, shim::kStandbySocket);
  launch.is_standby = true;
  launch.target = 0;
  launch.port = 0;
  launch.lease = {};
  launch.last_attempt = 0;
  launch.first_log = 0;
  if (const Status placed = launcher->place(entry.spec, name, launch); !placed) return placed;
  entry.settled = false;
  entry.state = State::preparing;  // from here on there is something to end
  const auto bytes = encode_launch(launch);
  if (!bytes) return dtrain::fail(bytes.error());
  if (const Status written = replace_file(entry.directory + "/" + shim::kLaunchFile, *bytes); !written) return written;
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return dtrain::fail(ErrorCode::io, "no socket: " + cause_of(errno));
  entry.link = ShimLink(UniqueFd(pair[0]));
  auto process = launcher->launch(entry.spec, entry.directory, launch, UniqueFd(pair[1]));
  if (!process) return dtrain::fail(process.error());
  entry.process.path_room = *process ? entry.directory.size() + shim::kPathRoom : 0;
  entry.process.pidfd = std::move(*process);
  poller_.add(entry.link.fd(), entry.handle * TrackedShim::kTags + TrackedShim::kStandbyTag);
  entry.link.send(shim::Command::hello, shim::kVersion, shim::kVersion);
  return {};
}

bool Standbys::answered(const std::string& cgroup, const std::optional<Error>& refusal, Instant now) {
  for (auto& [key, entry] : entries_) {
    if (entry.state == State::none || entry.launch.cgroup != cgroup) continue;
    if (refusal) fail(entry, refusal->text(), now);
    return true;
  }
  return false;
}

void Standbys::ready(std::uint64_t handle, Instant now) {
  for (auto& [key, entry] : entries_) {
    if (entry.handle != handle) continue;
    if (entry.state == State::waits) return fail(entry, "one that waited ended", now);
    if (entry.link) return receive(entry, now);
  }
}

void Standbys::receive(Entry& entry, Instant now) {
  for (int i = 0; i < kStandbyPackets && entry.link; ++i) {
    ShimLink::Received received = entry.link.receive();
    if (std::holds_alternative<ShimLink::Nothing>(received)) return;
    if (std::holds_alternative<ShimLink::Closed>(received)) return fail(entry, "its shim ended", now);
    if (const auto* record = std::get_if<ShimRecord>(&received)) {
      if (!on_record(entry, *record, now)) return;
    } else if (const auto* reply = std::get_if<shim::ReplyPacket>(&received)) {
      if (reply->outcome != static_cast<std::uint16_t>(shim::Outcome::done)) return fail(entry, "its shim could not begin", now);
      if (reply->command != static_cast<std::uint16_t>(shim::Command::end)) continue;
      if (reply->a != 1) return fail(entry, "its shim does not stay", now);
      poller_.remove(entry.link.fd());
      entry.process.socket = entry.link.release();
      poller_.add(entry.process.pidfd.get(), entry.handle * TrackedShim::kTags + TrackedShim::kStandbyTag);
      entry.state = State::waits;
      plan_.ready(key_of(entry.spec.id), now);
      report_({entry.spec.id, node::StandbyReport::News::ready, ""});
    }
  }
}

// False: the standby has failed.
bool Standbys::on_record(Entry& entry, const ShimRecord& record, Instant now) {
  if (!entry.process.pidfd && record.fixed.shim_pid > 0)
    entry.process.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, record.fixed.shim_pid, 0)));
  if (!entry.settled)
    if (Launcher* launcher = launchers_.that_started(entry.launch)) launcher->settled(entry.launch, record.fixed.shim_pid);
  entry.settled = true;
  if (record.fixed.cold[0] != '\0') {
    fail(entry, std::string(record.fixed.cold, ::strnlen(record.fixed.cold, sizeof(record.fixed.cold))), now);
    return false;
  }
  if (record.has(shim::kStandsBy) && entry.state == State::preparing) {
    entry.state = State::leaving;
    entry.link.send(shim::Command::end, 1);
  }
  return true;
}

void Standbys::fail(Entry& entry, const std::string& cause, Instant now) {
  end(entry, now);
  plan_.failed(key_of(entry.spec.id), now);
  report_({entry.spec.id, node::StandbyReport::News::failed, cause});
}

void Standbys::end(Entry& entry, Instant now) {
  if (entry.state == State::none) return;
  if (entry.state == State::waits) poller_.remove(entry.process.pidfd.get());
  entry.state = State::none;
  if (entry.link) poller_.remove(entry.link.fd());
  entry.link.close();
  entry.process.socket.reset();
  kill_process(entry.process.pidfd);
  if (Launcher* launcher = launchers_.that_started(entry.launch)) launcher->settled(entry.launch, 0);
  ending_.push_back({std::move(entry.process.pidfd), entry.launch, entry.directory, {}, now});
}

void Standbys::bury(Ending& ending, Instant now) {
  if (cgroup_populated(ending.launch.cgroup) || (ending.pidfd && !has_ended(ending.pidfd))) {
    cgroup_kill(ending.launch.cgroup);
    ending.pause = std::clamp(ending.pause * 2, kFirstBuryPause, kLastBuryPause);
    ending.look_at = now + ending.pause;
    return;
  }
  // systemd removes its own, and would wait for ever to hear that one is empty which is gone.
  if (!ending.launch.is_unit) cgroup_remove({ending.launch.cgroup, ending.launch.memory_cgroup});
  std::error_code ignored;
  std::filesystem::remove_all(ending.directory, ignored);
  ending.look_at = kNever;
}

// ---------------------------------------------------------------- time

void Standbys::pass_time(Instant now) {
  using Act = task::StandbyPlan::Act;
  const bool due = now >= plan_.deadline();
  const auto memory = [this] { return entries_.empty() ? available_on_host() : available_beside(entries_.begin()->second.task); };
  for (const auto& [key, act, cause] : due ? plan_.steps(now, memory()) : std::vector<task::StandbyPlan::Step>()) {
    Entry& entry = entries_.at(key);
    if (act == Act::give_up) {
      fail(entry, cause, now);
    } else if (act == Act::forget) {
      end(entry, now);
      entries_.erase(key);
    } else if (const Status begun = start(entry, now); !begun) {
      fail(entry, begun.error().text(), now);
    }
  }
  for (Ending& ending : ending_)
    if (now >= ending.look_at) bury(ending, now);
  std::erase_if(ending_, [](const Ending& ending) { return ending.look_at == kNever; });
}

Instant Standbys::deadline() const {
  Instant due = plan_.deadline();
  for (const Ending& ending : ending_) due = std::min(due, ending.look_at);
  return due;
}

}  // namespace dtrain::proc
