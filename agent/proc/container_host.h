// What this host has for tasks in images: a container engine (common/job/container_engine.h), and what its program must find.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/account/host_user.h"
#include "agent/proc/launch_file.h"
#include "agent/proc/runner.h"
#include "common/job/container_engine.h"

namespace dtrain::proc {

struct EngineHere {
  std::string name;     // of the engine, or of the one that only lacks something; "": nothing of any is here
  std::string program;  // absolute; "": this host has no engine
  std::string lacks;    // for people
};

// The first engine whose programs are in the directories of `path` and that works with the host's control groups, or only that one.
EngineHere find_engine_here(const std::string& only, const std::string& path, bool only_cgroup_v2);
inline constexpr const char* kLacksCgroupV2 = "cgroup version 2 alone";
inline constexpr const char* kEnginePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// True if the host has cgroup version 2 alone.
bool has_only_cgroup_v2();

// Variables of an engine's program that runs as that user.
std::map<std::string, std::string> engine_surroundings(const account::HostUser& user);

// The nearest directory above that user's images which exists.
std::string images_directory(const account::HostUser& user);

// What of the host's devices a task in an image gets: names of CDI for NVIDIA's GPUs where there are some, else the nodes of its own GPUs
// and their drivers; and RDMA devices.
std::vector<std::string> image_devices(const task::ShimSpec& spec, const std::string& root = "");

// Replaces the command in `launch` by the engine's, which runs it in the image of `spec`.
Status put_into_image(const RunnerOptions& options, const task::ShimSpec& spec, const account::HostUser& user, LaunchFile& launch);

// The image's process that came first among those of these control groups; where a task has none, among all that were given `notify` as
// NOTIFY_SOCKET. 0: there is none.
int process_in_image(const std::vector<std::string>& cgroups, const std::string& notify, std::string_view mark,
                     const std::string& proc = "/proc");

}  // namespace dtrain::proc
