#include "agent/proc/direct_launcher.h"

#include "agent/proc/spawn_shim.h"

namespace dtrain::proc {

namespace {

class DirectLauncher final : public Launcher {
 public:
  DirectLauncher(std::string shim_path, Cgroups cgroups) : shim_path_(std::move(shim_path)), cgroups_(std::move(cgroups)) {}

  Status place(const task::ShimSpec& spec, LaunchFile& launch) override {
    const auto made = cgroups_.create(spec.id.text(), spec.memory_bytes);
    if (!made) return fail(made.error());
    launch.cgroup = made->v2;
    launch.memory_cgroup = made->memory;
    return {};
  }

  Result<UniqueFd> launch(const task::ShimSpec&, const std::string& directory, const LaunchFile& launch, UniqueFd theirs) override {
    return spawn_shim(shim_path_, directory, launch.cgroup, std::move(theirs));
  }

 private:
  const std::string shim_path_;
  const Cgroups cgroups_;
};

}  // namespace

std::unique_ptr<Launcher> make_direct_launcher(std::string shim_path, Cgroups cgroups) {
  return std::make_unique<DirectLauncher>(std::move(shim_path), std::move(cgroups));
}

}  // namespace dtrain::proc
