// podman, as the task's user and without rights: images, containers and layers are those of that user (docs/images.md).
#include <algorithm>
#include <array>

#include "common/job/container_engine.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

// podman and its helpers read these themselves: they have the host's, and the command's own are given as arguments. All others are
// passed on by name, since everybody may read a program's arguments.
constexpr std::array<std::string_view, 5> kReadByPodman = {"PATH", "HOME", "TMPDIR", "NOTIFY_SOCKET", "SHELL"};
constexpr std::array<std::string_view, 14> kReadByPodmanPrefixes = {"XDG_",    "LD_",     "CONTAINER", "STORAGE_",    "REGISTRY_",
                                                                    "DOCKER_", "PODMAN_", "BUILDAH_",  "_CONTAINERS", "LISTEN_",
                                                                    "GO",      "DBUS_",   "LIBPOD_",   "CNI_"};

constexpr std::string_view kDevShm = "/dev/shm";  // always mounted: libraries of collectives meet there

bool is_read_by_podman(std::string_view name) {
  return std::ranges::find(kReadByPodman, name) != kReadByPodman.end() ||
         std::ranges::any_of(kReadByPodmanPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Control groups are dtrain's: podman makes none, and looks for no service manager that would. Its warnings are not the command's output.
std::string podman_call() { return "\"$p\" --cgroup-manager=cgroupfs --log-level=error "; }

// Removes what a kill has left of the container and its volumes (which may need two tries), then becomes `podman run`. `rank`: the variable
// by which ranks of one task differ, who have a container each; "": there is one.
std::string run_script(const std::string& rank) {
  const std::string remove = podman_call() + "rm --force --ignore --volumes --time=0 \"$n\" >/dev/null";
  return "p=$1 n=$2" + (rank.empty() ? "" : "-$" + rank) + "; shift 2; " + remove + " 2>&1 || " + remove + "; exec " + podman_call() +
         "run --name=\"$n\" \"$@\"";
}

// All podmen of a user are in namespaces that one process of that user keeps. It begins here, outside of any task that may be killed: a
// podman that had to begin it would itself be two processes, of which the first ends at any signal, with code 0. If that process and all
// containers were killed, podman takes the containers for running, and works only after `system migrate`, which ends containers and so is
// not asked for while one of them can be joined. Root has no such process.
std::string look_script() {
  return "p=$1; if [ \"$(id -u)\" != 0 ]; then " + podman_call() + "unshare true 2>/dev/null || " + podman_call() +
         "system migrate >/dev/null 2>&1; " + podman_call() + "unshare true || exit 125; fi; exec " + podman_call() + "image exists \"$2\"";
}

// What podman itself says of a pull where it has no terminal names layers as they begin, and no sizes. What has arrived is in the directory
// where it puts layers until they are unpacked: here a directory of this pull alone, on the disk of the images, which is the place that
// containers.conf calls "storage". A killed podman leaves there what it had. The lock of a pull ends with its shell; whoever makes or
// removes a directory has that of the place.
std::string pull_script() {
  return "p=$1; t=$(" + podman_call() +
         "info --format '{{.Store.GraphRoot}}')/tmp && mkdir -p \"$t\" || exit 125; exec 8<\"$t\"; flock 8; "
         "for d in \"$t\"/dtrain-*; do [ ! -d \"$d\" ] || flock --nonblock \"$d\" rm -rf \"$d\"; done; "
         "w=$(mktemp -d \"$t/dtrain-XXXXXX\") || exit 125; exec 9<\"$w\"; flock 9; exec 8<&-; "
         "while sleep 2 && [ -d \"$w\" ]; do du -sk \"$w\"; done 2>/dev/null 9<&- & "
         "TMPDIR=$w " +
         podman_call() + "pull --quiet \"$2\" >/dev/null 9<&-; c=$?; rm -rf \"$w\"; exit $c";
}

Result<Started> run_podman(const InImage& task) {
  Started out;
  out.argv = {"/bin/sh", "-c", run_script(task.rank), "dtrain", task.program, task.name};
  // Images are never fetched here: that is a step of staging. --init: the command gets signals as it would get them on the host, which the
  // first process of a namespace does not.
  for (const char* option :
       {"--rm", "--init", "--pull=never", "--cgroups=disabled", "--network=host", "--uts=host", "--ulimit=host",
        "--security-opt=label=disable", "--log-driver=passthrough", "--sdnotify=ignore", "--entrypoint=", "--volume=/dev/shm:/dev/shm"})
    out.argv.emplace_back(option);
  out.argv.push_back("--user=" + std::to_string(task.uid) + ":" + std::to_string(task.gid));
  if (task.uid != 0)
    for (const char* option : {"--userns=keep-id", "--group-add=keep-groups"}) out.argv.emplace_back(option);
  out.argv.push_back("--workdir=" + task.work_dir);
  for (const std::string& path : without_nested(task.directories)) {
    if (path.find(':') != std::string::npos)
      return fail(ErrorCode::invalid, "could not run image " + task.image + ": " + in_quotes(path) + " cannot be mounted in it",
                  "use a path without a colon");
    if (path != kDevShm) out.argv.push_back("--volume=" + path + ":" + path);
  }
  for (const std::string& device : task.devices) out.argv.push_back("--device=" + device);
  out.env = task.surroundings;
  for (const auto& [name, value] : task.env) {
    if (is_read_by_podman(name)) {
      out.argv.push_back("--env=" + name + "=" + value);
    } else {
      out.argv.push_back("--env=" + name);
      out.env[name] = value;
    }
  }
  for (const std::string& name : task.later)
    if (!task.env.contains(name)) out.argv.push_back("--env=" + name);
  out.argv.push_back(task.image);
  out.argv.insert(out.argv.end(), task.argv.begin(), task.argv.end());
  return out;
}

std::vector<std::string> look_podman(const std::string& program, const std::string& image) {
  return {"/bin/sh", "-c", look_script(), "dtrain", program, image};
}

std::vector<std::string> pull_podman(const std::string& program, const std::string& image) {
  return {"/bin/sh", "-c", pull_script(), "dtrain", program, image};
}

bool only_here(std::string_view image) { return image.starts_with("localhost/"); }

using Then = PullFault::Then;
constexpr std::string_view kLogIn = "`podman login` to its registry there as that user, or correct its name";
constexpr std::string_view kCorrect = "correct its name, or push it to its registry";
constexpr std::string_view kMakeRoom = "free space there, or `podman image prune` as that user";
constexpr std::string_view kTrust =
    "let podman there trust the registry: its certificate in /etc/containers/certs.d, or insecure = true in registries.conf";
constexpr std::array<PullFault, 15> kFaults = {{
    {"no space left on device", Then::elsewhere, kMakeRoom},
    {"disk quota exceeded", Then::elsewhere, kMakeRoom},
    {"manifest unknown", Then::never, kCorrect},
    {"name unknown", Then::never, kCorrect},
    {"unauthorized", Then::never, kLogIn},
    {"authentication required", Then::never, kLogIn},
    {"denied", Then::never, kLogIn},
    {"no image found in", Then::never, "give an image that was made for the architecture of the hosts"},
    {"not found", Then::never, kCorrect},
    {"invalid reference", Then::never, "write it as REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST"},
    {"short-name", Then::never, "write its name with its registry: REGISTRY/NAME:TAG"},
    {"server gave HTTP response to HTTPS client", Then::never, kTrust},
    {"does not look like a TLS handshake", Then::never, kTrust},
    {"x509: ", Then::never, kTrust},
    {"", Then::again, "pull it there as that user with podman"},
}};

}  // namespace

extern const ContainerEngine kPodman;
const ContainerEngine kPodman{"podman", "newuidmap", "apt install podman uidmap catatonit, and start the agent again",
                              true,     run_podman,  look_podman,
                              1,        pull_podman, only_here,
                              kFaults,  "container"};

}  // namespace dtrain::job
