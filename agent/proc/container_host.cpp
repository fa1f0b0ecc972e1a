#include "agent/proc/container_host.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>

#include "agent/base/small_file.h"
#include "agent/proc/cgroup.h"
#include "agent/proc/device_nodes.h"
#include "agent/proc/stage_work.h"

namespace dtrain::proc {

namespace fs = std::filesystem;

namespace {

constexpr const char* kCdiDirectories[] = {"/etc/cdi", "/var/run/cdi"};
constexpr std::size_t kMostCdiBytes = 4 << 20;  // of one specification
constexpr const char* kRdmaDevices = "/dev/infiniband";
constexpr const char* kAttemptVariable = "DTRAIN_ATTEMPT";

std::string program_in(const std::string& path, std::string_view name) {
  std::istringstream entries(path);
  for (std::string directory; std::getline(entries, directory, ':');)
    if (const std::string file = directory + "/" + std::string(name); ::access(file.c_str(), X_OK) == 0) return file;
  return "";
}

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) files.push_back(at->path().string());
  std::ranges::sort(files);
  return files;
}

bool all_differ(const std::vector<job::Variables>& ranks, const std::string& name) {
  std::set<std::string> values;
  return std::ranges::all_of(ranks, [&](const job::Variables& rank) { return values.insert(rank.at(name)).second; });
}

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// The time at which a process began, by the 22nd field of its stat.
std::uint64_t start_of(const std::string& stat) {
  const std::size_t name_end = stat.rfind(')');
  std::istringstream rest(name_end == std::string::npos ? "" : stat.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) rest >> field;
  std::uint64_t start = 0;
  std::from_chars(field.data(), field.data() + field.size(), start);
  return start;
}

}  // namespace

EngineHere find_engine_here(const std::string& only, const std::string& path, bool only_cgroup_v2) {
  EngineHere here;
  for (const job::ContainerEngine* engine : job::container_engines()) {
    if (!only.empty() && engine->name != only) continue;
    std::string lacks;
    for (const std::string_view name : {engine->name, engine->helper})
      if (!name.empty() && lacks.empty() && program_in(path, name).empty()) lacks = std::string(name);
    if (lacks.empty() && engine->needs_cgroup_v2 && !only_cgroup_v2) lacks = kLacksCgroupV2;
    const std::string program = program_in(path, engine->name);
    if (lacks.empty()) return {std::string(engine->name), program, ""};
    if (here.name.empty() && (!only.empty() || !program.empty())) here = {std::string(engine->name), "", lacks};
  }
  return here;
}

bool has_only_cgroup_v2() {
  struct statfs top {};
  return ::statfs("/sys/fs/cgroup", &top) == 0 && top.f_type == CGROUP2_SUPER_MAGIC;
}

std::map<std::string, std::string> engine_surroundings(const account::HostUser& user) {
  std::map<std::string, std::string> variables = {{"PATH", kEnginePath}, {"LC_ALL", "C.UTF-8"}};
  variables["HOME"] = user.home.empty() ? "/" : user.home;
  if (!user.name.empty()) variables["USER"] = variables["LOGNAME"] = user.name;
  // Of the user's session, if it has one; else where podman itself goes, in a directory that stays.
  const std::string uid = std::to_string(user.uid), own = "/tmp/podman-run-" + uid;
  for (const std::string& directory : {"/run/user/" + uid, own}) {
    if (user.uid == 0) break;
    if (directory == own && ::mkdir(own.c_str(), 0700) == 0 && ::geteuid() == 0) (void)!::lchown(own.c_str(), user.uid, user.gid);
    struct stat info {};
    if (::lstat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != user.uid) continue;
    variables["XDG_RUNTIME_DIR"] = directory;
    break;
  }
  return variables;
}

std::string images_directory(const account::HostUser& user) {
  fs::path path =
      user.uid == 0 ? fs::path("/var/lib/containers") : fs::path(user.home.empty() ? "/" : user.home) / ".local/share/containers";
  while (path.has_relative_path() && !is_there(path.string())) path = path.parent_path();
  return path.string();
}

std::vector<std::string> image_devices(const task::ShimSpec& spec, const std::string& root) {
  std::string specifications;
  for (const char* directory : kCdiDirectories)
    for (const std::string& file : files_in(root + directory)) specifications += read_small_file(file, kMostCdiBytes).value_or("") + "\n";
  // AMD's need no more than their nodes, and a number that names one of them may be that of another maker's in CDI.
  const bool amd = std::ranges::any_of(spec.image->gpus, [](const task::OwnGpu& gpu) { return gpu.vendor == "amd"; });
  std::vector<std::string> devices = amd ? std::vector<std::string>() : job::cdi_names(specifications, spec.gpu_ids);
  if (devices.empty()) devices = present_nodes(spec.image->gpus, root);
  std::error_code error;
  for (const std::string& device : files_in(root + kRdmaDevices))
    if (fs::is_character_file(device, error)) devices.push_back(device.substr(root.size()));
  return devices;
}

Status put_into_image(const RunnerOptions& options, const task::ShimSpec& spec, const account::HostUser& user, LaunchFile& launch) {
  const job::ContainerEngine* engine = job::find_engine(options.image_engine);
  if (engine == nullptr)
    return fail(ErrorCode::unavailable, "could not launch " + spec.id.text() + ": this host runs no images any more",
                std::string(job::container_engines().front()->install));
  job::InImage task;
  task.program = options.image_program;
  task.name = cgroup_name_of(options.tasks_dir) + "-" + spec.id.text();
  task.image = spec.image->name;
  task.uid = user.uid;
  task.gid = user.gid;
  task.work_dir = spec.work_dir;
  const std::string copy = job_copy({options.work_root, {}, {}}, spec.id.job);
  const bool has_copy = !options.work_root.empty() && is_there(copy);
  task.directories = spec.image->directories;
  if (has_copy) task.directories.push_back(copy);
  if (is_there(spec.work_dir)) task.directories.push_back(spec.work_dir);
  if (const auto temporary = launch.env.find("TMPDIR"); temporary != launch.env.end() && is_there(temporary->second))
    task.directories.push_back(temporary->second);
  // The root of the host would hide the image.
  std::erase_if(task.directories, [](const std::string& path) { return path.find_first_not_of('/') == std::string::npos; });
  task.devices = image_devices(spec);
  task.argv = std::move(launch.argv);
  task.env = std::move(launch.env);
  task.env[job::kImageVariable] = spec.image->name;
  task.env.try_emplace("HOME", has_copy ? copy : spec.work_dir);  // that of the host is not in the image
  task.env.try_emplace("NOTIFY_SOCKET", launch.notify);
  task.later = {kAttemptVariable};
  if (!launch.ranks.empty())
    for (const auto& [name, value] : launch.ranks.front()) {
      task.later.push_back(name);
      if (task.rank.empty() && all_differ(launch.ranks, name)) task.rank = name;
    }
  task.surroundings = engine_surroundings(user);
  auto started = engine->run(task);
  if (!started) return fail(started.error());
  launch.argv = std::move(started->argv);
  launch.env = std::move(started->env);
  launch.stop_grace = Duration{0};
  // The engine's program begins on the host, which may not have a directory that lies in the image.
  launch.work_dir = has_copy ? copy : is_there(spec.work_dir) ? spec.work_dir : "/";
  return {};
}

int process_in_image(const std::vector<std::string>& cgroups, const std::string& notify, std::string_view mark, const std::string& proc) {
  std::vector<std::string> numbers;
  for (const std::string& cgroup : cgroups) {
    std::istringstream listed(cgroup.empty() ? "" : read_small_file(cgroup + "/cgroup.procs").value_or(""));
    for (std::string number; listed >> number;) numbers.push_back(number);
  }
  const bool grouped = std::ranges::any_of(cgroups, [](const std::string& cgroup) { return !cgroup.empty(); });
  std::error_code error;
  for (fs::directory_iterator at(proc, error), end; !grouped && !error && at != end; at.increment(error))
    if (const std::string name = at->path().filename(); name.find_first_not_of("0123456789") == std::string::npos) numbers.push_back(name);
  const std::string zero(1, '\0');
  int first = 0;
  std::uint64_t first_start = 0;
  for (const std::string& number : numbers) {
    const std::string environment = zero + read_small_file(proc + "/" + number + "/environ").value_or("");
    const auto has = [&](const std::string& text) { return environment.find(zero + text) != std::string::npos; };
    if (!has(std::string(mark) + "=") || (!grouped && !has("NOTIFY_SOCKET=" + notify + zero))) continue;
    const std::uint64_t start = start_of(read_small_file(proc + "/" + number + "/stat").value_or(""));
    if (first != 0 && start >= first_start) continue;
    first_start = start;
    std::from_chars(number.data(), number.data() + number.size(), first);
  }
  return first;
}

}  // namespace dtrain::proc
