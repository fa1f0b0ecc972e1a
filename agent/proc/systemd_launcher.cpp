#include "agent/proc/systemd_launcher.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <set>
#include <vector>

#include "agent/proc/cgroup.h"
#include "agent/proc/device_nodes.h"
#include "agent/proc/small_file.h"
#include "agent/proc/system_bus.h"
#include "agent/proc/took_effect.h"

namespace dtrain::proc {

namespace {

constexpr const char* kInitScope = "/init.scope";        // where systemd keeps itself, below the root of its groups

constexpr std::pair<const char*, __rlimit_resource> kLimits[] = {
    {"AS", RLIMIT_AS},           {"CORE", RLIMIT_CORE},   {"CPU", RLIMIT_CPU},     {"DATA", RLIMIT_DATA},  {"FSIZE", RLIMIT_FSIZE},
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

std::string name_of(const std::string& cgroup) { return cgroup.substr(cgroup.rfind('/') + 1); }

class SystemdLauncher final : public Launcher {
 public:
  SystemdLauncher(std::string shim_path, std::unique_ptr<SystemBus> bus, std::string slice, std::string memory_slice,
                  std::function<void(const Error&)> warn)
      : bus_(std::move(bus)), slice_(std::move(slice)), memory_slice_(std::move(memory_slice)), warn_(std::move(warn)) {
    host_.shim_path = std::move(shim_path);
    host_.limits = own_limits();
    host_.capabilities = own_capabilities();
  }

  bool has_room() const override { return starting_.size() < kMostStarting; }
  Status place(const task::ShimSpec& spec, LaunchFile& launch) override;
  Result<UniqueFd> launch(const task::ShimSpec& spec, const std::string& directory, const LaunchFile& launch, UniqueFd theirs) override;
  void settled(const LaunchFile& launch, int pid) override;
  void dispatch(const OnAnswer& on_answer) override;
  Instant deadline() const override { return answers_.empty() ? bus_->deadline() : Instant{}; }

 private:
  struct Starting {
    task::ShimSpec spec;
    UnitHost host;
  };
  struct Answer {
    AssignmentId id;
    std::string cgroup;
    std::optional<Error> refusal;
  };
  void warn_once(const std::string& kind, const Error& error) {
    if (warned_.insert(kind).second && warn_) warn_(error);
  }

  const std::unique_ptr<SystemBus> bus_;
  const std::string slice_, memory_slice_;   // of version 1, where that is what limits memory; "": none
  const std::function<void(const Error&)> warn_;
  UnitHost host_;
  std::map<std::string, Starting> starting_;   // by cgroup
  std::vector<Answer> answers_;
  std::set<std::string> warned_;
};

// systemd makes the groups. That of version 1 is where the shim finds itself and looks for what the kernel killed.
Status SystemdLauncher::place(const task::ShimSpec& spec, LaunchFile& launch) {
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
  Starting starting{spec, host_};
  starting.host.directory = directory;
  if (spec.gpu_pci) {
    if (auto nodes = device_nodes(*spec.gpu_pci)) {
      starting.host.devices = std::move(*nodes);
    } else {
      warn_once("device_nodes", nodes.error());
      starting.spec.gpu_pci.reset();
    }
  }
  const auto properties = unit_properties(starting.spec, starting.host);
  starting_.insert_or_assign(launch.cgroup, std::move(starting));
  bus_->start(name_of(launch.cgroup), properties, theirs.get(),
              [this, id = spec.id, cgroup = launch.cgroup](SystemBus::Outcome outcome, const std::string& cause) {
                std::optional<Error> refusal;
                if (outcome == SystemBus::Outcome::refused)
                  refusal = Error{ErrorCode::unavailable, "could not launch the shim of " + id.text() + " through systemd: " + cause, ""};
                answers_.push_back({id, cgroup, std::move(refusal)});
              });
  return UniqueFd();
}

void SystemdLauncher::settled(const LaunchFile& launch, int pid) {
  const auto starting = starting_.find(launch.cgroup);
  if (pid == 0 && launch.is_unit) bus_->stop(name_of(launch.cgroup));
  if (starting == starting_.end()) return;
  if (pid != 0)
    for (const Difference& difference : compare(starting->second.spec, starting->second.host, look_at(pid)))
      warn_once(difference.kind, difference.error);
  starting_.erase(starting);
}

void SystemdLauncher::dispatch(const OnAnswer& on_answer) {
  bus_->dispatch();
  for (Answer& answer : std::exchange(answers_, {})) on_answer(answer.id, answer.cgroup, std::move(answer.refusal));
}

tl::unexpected<Error> unusable(const std::string& cause) {
  return fail(ErrorCode::unavailable, "could not launch tasks through systemd: " + cause, "use tasks.launch: direct (or auto)");
}

}  // namespace

Result<std::unique_ptr<Launcher>> make_systemd_launcher(std::string shim_path, Poller& poller, std::uint64_t tag,
                                                        std::function<void(const Error&)> warn) {
  auto top = cgroup_of(1, "");
  if (!top) return unusable("there is no cgroup v2");
  const std::string scope = kInitScope;
  if (top->size() < scope.size() || top->compare(top->size() - scope.size(), scope.size(), scope) != 0)
    return unusable("its control group is " + *top + ", not " + scope + " of its own");
  top->resize(top->size() - scope.size());
  const std::string slice = *top + "/" + kTasksSlice;
  auto bus = SystemBus::open(poller, tag);
  if (!bus) return fail(bus.error());
  return std::unique_ptr<Launcher>(std::make_unique<SystemdLauncher>(std::move(shim_path), std::move(*bus), slice,
                                                                     same_cgroup(slice, "memory").value_or(""), std::move(warn)));
}

}  // namespace dtrain::proc
