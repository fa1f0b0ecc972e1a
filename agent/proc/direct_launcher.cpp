#include "agent/proc/direct_launcher.h"

#include <set>

#include "agent/proc/spawn_shim.h"
#include "agent/proc/took_effect.h"

namespace dtrain::proc {

namespace {

class DirectLauncher final : public Launcher {
 public:
  DirectLauncher(std::string shim_path, Cgroups cgroups, std::function<void(const Error&)> warn)
      : shim_path_(std::move(shim_path)), cgroups_(std::move(cgroups)), warn_(std::move(warn)) {}

  bool started(const LaunchFile& launch) const override { return !launch.is_unit; }
  bool takes_spares() const override { return true; }

  Status place(const task::ShimSpec& spec, const std::string& name, LaunchFile& launch) override {
    const auto made = cgroups_.create(name, spec.memory_bytes);
    if (!made) return fail(made.error());
    launch.cgroup = made->v2;
    launch.memory_cgroup = made->memory;
    return {};
  }

  Result<UniqueFd> launch(const task::ShimSpec&, const std::string& directory, const LaunchFile& launch, UniqueFd theirs) override {
    return spawn_shim(shim_path_, directory, launch.cgroup.empty() ? "" : cgroups_.shims(), std::move(theirs));
  }

  void began(const LaunchFile& launch, int pid) override {
    if (launch.cpus.empty() && launch.numa_node < 0) return;
    for (const Difference& difference : compare_cpus(launch.cpus, launch.numa_node, look_at_cpus(pid)))
      if (warned_.insert(difference.kind).second && warn_) warn_(difference.error);
  }

 private:
  const std::string shim_path_;
  const Cgroups cgroups_;
  const std::function<void(const Error&)> warn_;
  std::set<std::string> warned_;
};

}  // namespace

std::unique_ptr<Launcher> make_direct_launcher(std::string shim_path, Cgroups cgroups, std::function<void(const Error&)> warn) {
  return std::make_unique<DirectLauncher>(std::move(shim_path), std::move(cgroups), std::move(warn));
}

}  // namespace dtrain::proc
