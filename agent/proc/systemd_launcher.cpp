#include "agent/proc/systemd_launcher.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <vector>

#include "agent/base/boot_clock.h"
#include "agent/base/small_file.h"
#include "agent/proc/cgroup.h"
#include "agent/proc/device_nodes.h"
#include "agent/proc/took_effect.h"

namespace dtrain::proc {

namespace {

constexpr Duration kAskAgain = 200ms;              // if systemd did not answer: until the launch is given up
constexpr const char* kInitScope = "/init.scope";  // where systemd keeps itself, below the root of its groups

constexpr std::pair<const char*, __rlimit_resource> kLimits[] = {
    {"AS", RLIMIT_AS},           {"CORE", RLIMIT_CORE},     {"CPU", RLIMIT_CPU},     {"DATA", RLIMIT_DATA},  {"FSIZE", RLIMIT_FSIZE},
    {"MEMLOCK", RLIMIT_MEMLOCK}, {"NOFILE", RLIMIT_NOFILE}, {"NPROC", RLIMIT_NPROC}, {"STACK", RLIMIT_STACK}};

std::vector<UnitLimit> own_limits() {
  std::vector<UnitLimit> limits;
  for (const auto& [name, resource] : kLimits) {
    rlimit value{};
    if (::getrlimit(resource, &value) == 0) limits.push_back({name, value.rlim_cur, value.rlim_max});
  }
  return limits;
}

std::uint64_t own_capabilities() {
  const std::string status = read_small_file("/proc/self/status").value_or("");
  const std::size_t at = status.find("\nCapBnd:");
  return at == std::string::npos ? ~std::uint64_t{0} : std::strtoull(status.c_str() + at + 8, nullptr, 16);
}

// systemd fails a start with CPUs or a memory policy that the kernel refuses, while a shim does without: they must never
// keep a task from starting. Leaves out CPUs that went offline since the agent began, or that `slice` may not use.
std::optional<Error> leave_out_cpus(task::ShimSpec& spec, const std::string& slice) {
  const std::size_t asked = spec.cpus.size();
  for (const std::string& file : {std::string("/sys/devices/system/cpu/online"), slice + "/cpuset.cpus.effective"}) {
    const auto list = read_small_file(file);
    if (!list) continue;  // no such control group, or not yet
    const std::vector<std::uint32_t> there = parse_cpu_list(*list);
    std::erase_if(spec.cpus, [&](std::uint32_t cpu) { return std::ranges::find(there, cpu) == there.end(); });
  }
  if (spec.cpus.size() == asked) return std::nullopt;
  return Error{ErrorCode::unavailable,
               "could not give " + spec.id.text() + " its CPUs: " + std::to_string(asked - spec.cpus.size()) + " of " +
                   std::to_string(asked) + " are offline or not " + std::string(kTasksSlice) + "'s",
               "restart dtraind, which then knows what CPUs there are; compare AllowedCPUs of " + std::string(kTasksSlice)};
}

// Likewise a NUMA node if no policy may be set, or if it has no memory, or none for `slice`.
std::optional<Error> leave_out_node(task::ShimSpec& spec, const std::string& slice) {
  if (spec.numa_node < 0) return std::nullopt;
  const std::string what = "could not give " + spec.id.text() + " the memory of its CPUs' NUMA node: ";
  if (::syscall(SYS_get_mempolicy, nullptr, nullptr, 0, nullptr, 0) != 0) {
    spec.numa_node = -1;
    return Error{ErrorCode::unavailable, what + "NUMA policies cannot be set here",
                 "check that the kernel knows NUMA, and that the container permits set_mempolicy"};
  }
  for (const std::string& file : {std::string("/sys/devices/system/node/has_memory"), slice + "/cpuset.mems.effective"}) {
    const auto list = read_small_file(file);
    if (!list) continue;
    const std::vector<std::uint32_t> there = parse_cpu_list(*list);
    const std::int32_t node = spec.numa_node;
    if (std::ranges::find(there, static_cast<std::uint32_t>(node)) != there.end()) continue;
    spec.numa_node = -1;
    return Error{ErrorCode::unavailable, what + std::to_string(node) + " is not among those of " + file,
                 "nothing, where that node has no memory; else compare AllowedMemoryNodes of " + std::string(kTasksSlice)};
  }
  return std::nullopt;
}

std::string name_of(const std::string& cgroup) { return cgroup.substr(cgroup.rfind('/') + 1); }

class SystemdLauncher final : public Launcher {
 public:
  SystemdLauncher(UnitHost host, std::unique_ptr<SystemBus> bus, std::string slice, std::string memory_slice,
                  std::function<void(const Error&)> warn)
      : bus_(std::move(bus)),
        slice_(std::move(slice)),
        memory_slice_(std::move(memory_slice)),
        warn_(std::move(warn)),
        host_(std::move(host)) {}

  bool started(const LaunchFile& launch) const override { return launch.is_unit; }
  bool has_room() const override { return starting_.size() < kMostStarting; }
  Status place(const task::ShimSpec& spec, const std::string& name, LaunchFile& launch) override;
  Result<UniqueFd> launch(const task::ShimSpec& spec, const std::string& directory, const LaunchFile& launch, UniqueFd theirs) override;
  void settled(const LaunchFile& launch, int pid) override;
  void dispatch(const OnAnswer& on_answer) override;
  Instant deadline() const override;

 private:
  struct Starting {
    task::ShimSpec spec;
    UnitHost host;
    UniqueFd theirs;          // until systemd has it
    Instant ask_at = kNever;  // again
  };
  struct Answer {
    AssignmentId id;
    std::string cgroup;
    std::optional<Error> refusal;
  };
  void ask(const std::string& cgroup, Starting& starting);
  void answered(const std::string& cgroup, SystemBus::Outcome outcome, const std::string& cause);
  void warn_once(const std::string& kind, const Error& error) {
    if (warned_.insert(kind).second && warn_) warn_(error);
  }

  const std::unique_ptr<SystemBus> bus_;
  const std::string slice_, memory_slice_;  // of version 1, if that limits memory; "": none
  const std::function<void(const Error&)> warn_;
  const UnitHost host_;                       // what all units have
  std::map<std::string, Starting> starting_;  // by cgroup
  std::vector<Answer> answers_;
  std::set<std::string> warned_;
};

// systemd makes the groups. In that of version 1 the shim finds itself and looks for kills by the kernel.
Status SystemdLauncher::place(const task::ShimSpec& spec, const std::string&, LaunchFile& launch) {
  std::uint32_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random))
    return fail(ErrorCode::io, "could not launch " + spec.id.text() + ": no randomness: " + cause_of(errno));
  const std::string unit = unit_name(spec.id, random);
  launch.cgroup = slice_ + "/" + unit;
  if (!memory_slice_.empty()) launch.memory_cgroup = memory_slice_ + "/" + unit;
  launch.is_unit = true;
  launch.stop_signal = spec.stop_signal;
  return {};
}

Result<UniqueFd> SystemdLauncher::launch(const task::ShimSpec& spec, const std::string& directory, const LaunchFile& launch,
                                         UniqueFd theirs) {
  Starting starting{spec, host_, std::move(theirs)};
  starting.host.directory = directory;
  starting.host.unit = name_of(launch.cgroup);
  if (spec.own_gpus) {
    if (auto nodes = device_nodes(*spec.own_gpus)) {
      starting.host.devices.insert(starting.host.devices.end(), nodes->begin(), nodes->end());
    } else {
      warn_once("device_nodes", nodes.error());
      starting.spec.own_gpus.reset();
    }
  }
  if (const auto left_out = leave_out_cpus(starting.spec, slice_)) warn_once("cpus", *left_out);
  if (const auto left_out = leave_out_node(starting.spec, slice_)) warn_once("node", *left_out);
  ask(launch.cgroup, starting_.insert_or_assign(launch.cgroup, std::move(starting)).first->second);
  return UniqueFd();
}

void SystemdLauncher::ask(const std::string& cgroup, Starting& starting) {
  starting.ask_at = kNever;
  bus_->start(starting.host.unit, unit_properties(starting.spec, starting.host), starting.theirs.get(),
              [this, cgroup](SystemBus::Outcome outcome, const std::string& cause) { answered(cgroup, outcome, cause); });
}

// If nobody answered, the connection is kept, so that its other end does not take the launch as failed; the agent
// gives the launch up when the greeting is late. A unit that was started after all is found then.
void SystemdLauncher::answered(const std::string& cgroup, SystemBus::Outcome outcome, const std::string& cause) {
  const auto found = starting_.find(cgroup);
  if (found == starting_.end()) return;
  Starting& starting = found->second;
  const std::string what = "could not launch the shim of " + starting.spec.id.text() + " through systemd: " + cause;
  if (outcome == SystemBus::Outcome::unknown) {
    starting.ask_at = boot_now() + kAskAgain;
    return warn_once("unanswered", Error{ErrorCode::unavailable, what, "nothing: it is asked again until the launch is given up"});
  }
  starting.theirs.reset();
  std::optional<Error> refusal;
  if (outcome == SystemBus::Outcome::refused) refusal = Error{ErrorCode::unavailable, what, ""};
  answers_.push_back({starting.spec.id, cgroup, std::move(refusal)});
}

void SystemdLauncher::settled(const LaunchFile& launch, int pid) {
  if (pid == 0) bus_->stop(name_of(launch.cgroup));
  const auto starting = starting_.find(launch.cgroup);
  if (starting == starting_.end()) return;
  // A process that has ended meanwhile has no limits to compare.
  if (const InForce seen = pid == 0 ? InForce{} : look_at(pid); seen.cgroup == launch.cgroup)
    for (const Difference& difference : compare(starting->second.spec, starting->second.host, seen))
      warn_once(difference.kind, difference.error);
  starting_.erase(starting);
}

void SystemdLauncher::dispatch(const OnAnswer& on_answer) {
  bus_->dispatch();
  const Instant now = boot_now();
  for (auto& [cgroup, starting] : starting_)
    if (now >= starting.ask_at) ask(cgroup, starting);
  for (Answer& answer : std::exchange(answers_, {})) on_answer(answer.id, answer.cgroup, std::move(answer.refusal));
}

Instant SystemdLauncher::deadline() const {
  if (!answers_.empty()) return Instant{};
  Instant due = bus_->deadline();
  for (const auto& [cgroup, starting] : starting_) due = std::min(due, starting.ask_at);
  return due;
}

tl::unexpected<Error> unusable(const std::string& cause) {
  return fail(ErrorCode::unavailable, "could not launch tasks through systemd: " + cause, "use tasks.launch: direct (or auto)");
}

}  // namespace

Result<std::unique_ptr<Launcher>> make_systemd_launcher(const RunnerOptions& options, Epoll& poller, std::uint64_t tag) {
  auto top = ProcessCgroups("1").in("");
  if (!top) return unusable("there is no cgroup v2");
  const std::string scope = kInitScope;
  if (top->size() < scope.size() || top->compare(top->size() - scope.size(), scope.size(), scope) != 0)
    return unusable("its control group is " + *top + ", not " + scope + " of its own");
  top->resize(top->size() - scope.size());
  const std::string slice = *top + "/" + kTasksSlice;
  auto bus = SystemBus::open(poller, tag);
  if (!bus) return fail(bus.error());
  return make_systemd_launcher(options, std::move(*bus), slice, same_cgroup(slice, "memory").value_or(""));
}

std::unique_ptr<Launcher> make_systemd_launcher(const RunnerOptions& options, std::unique_ptr<SystemBus> bus, std::string slice,
                                                std::string memory_slice) {
  UnitHost host;
  host.shim_path = options.shim_path;
  host.limits = own_limits();
  host.capabilities = own_capabilities();
  host.devices = options.devices;
  return std::make_unique<SystemdLauncher>(std::move(host), std::move(bus), std::move(slice), std::move(memory_slice), options.warn);
}

}  // namespace dtrain::proc
