// enroot, as the task's user and without rights: images are directories of that user, which the tasks only read (docs/images.md). Its
// programs become the command: nothing stands between the task's main process and its shim.
#include <algorithm>
#include <array>

#include "common/job/container_engine.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

// Variables of the command are given as assignments for the shell in the image, some of them in one variable: enroot has its own in a file,
// a line each. No variable of a program may be longer than 128 KiB.
constexpr const char* kAssignments = "DTRAIN_ENROOT_";
constexpr std::size_t kAssignmentBytes = 64 << 10;
constexpr const char* kMark = "container";
constexpr std::array<std::string_view, 2> kAlwaysThere = {"/dev", "/dev/shm"};
constexpr std::string_view kCdiPrefix = "nvidia.com/gpu=";

// What an administrator's enroot.conf may have else: the command sees nothing of the user's home and of the host's devices, and no image
// changes.
constexpr std::array<const char*, 5> kOff = {"ENROOT_LOGIN_SHELL", "ENROOT_MOUNT_HOME", "ENROOT_REMAP_ROOT", "ENROOT_RESTRICT_DEV",
                                             "ENROOT_ROOTFS_WRITABLE"};
// The command sees its own devices alone. What enroot does for that fails on a host that lacks one of these, as containers may.
constexpr const char* kOwnDevices = "[ -e /dev/log ] && [ -e /dev/mqueue ] && export ENROOT_RESTRICT_DEV=yes; ";

// The directory of an image: no image's name has a "+".
std::string directory_of(std::string image) {
  std::ranges::replace(image, '/', '+');
  return image;
}

// docker://registry.example#a/b:1; without a registry docker://a/b:1.
std::string uri_of(std::string image) {
  const std::size_t slash = image.find('/');
  if (slash != std::string::npos && image.substr(0, slash).find_first_of(".:") != std::string::npos) image[slash] = '#';
  return "docker://" + image;
}

// For a shell, on one line: a line's end is that of the variable n.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += "'\\''";
    else if (c == '\n') out += "'\"$n\"'";
    else out += c;
  }
  return out + "'";
}

Error cannot(const InImage& task, const std::string& what, std::string next) {
  return {ErrorCode::invalid, "could not run image " + task.image + ": " + what, std::move(next)};
}

Result<std::vector<std::string>> assignments(const InImage& task) {
  std::vector<std::string> parts(1);
  const auto add = [&parts](const std::string& text) {
    if (parts.back().size() + text.size() > kAssignmentBytes && !parts.back().empty()) parts.emplace_back();
    parts.back() += text;
  };
  for (const auto& [name, value] : task.env) {
    if (name.find_first_of(".-") != std::string::npos)
      return tl::unexpected<Error>(cannot(task, "enroot cannot pass on the variable " + in_quotes(name), "use letters, digits and _"));
    add("export " + name + "=" + quoted(value) + ";");
  }
  add("cd " + quoted(task.work_dir) + "||exit;export PWD;unset OLDPWD;");
  return parts;
}

// The command's way in, read by the shell of the image from descriptor 3.
std::string script_in_image(std::size_t parts) {
  std::string evals, names;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::string name = kAssignments + std::to_string(i);
    evals += "eval \"$" + name + "\"\n";
    names += " " + name;
  }
  return "exec 3<&- </dev/null\nn='\n'\nexport PATH\n" + evals + "unset n" + names + "\nexec \"$@\"\n";
}

Result<Started> run_enroot(const InImage& task) {
  const auto parts = assignments(task);
  if (!parts) return fail(parts.error());
  Started out;
  // The script is in enroot's stdin, since it closes all other descriptors.
  out.argv = {"/bin/sh",
              "-c",
              "p=$1; shift; " + std::string(kOwnDevices) + "exec \"$p\" start --rc=/dev/stdin \"$@\" <<'DTRAIN'\n" +
                  script_in_image(parts->size()) + "DTRAIN\n",
              "dtrain",
              task.program,
              std::string("--env=") + kMark + "=enroot"};
  out.env = task.surroundings;
  for (const char* name : kOff) out.env[name] = "no";
  for (std::size_t i = 0; i < parts->size(); ++i) {
    const std::string name = kAssignments + std::to_string(i);
    out.argv.push_back("--env=" + name);
    out.env[name] = (*parts)[i];
  }
  for (const std::string& name : task.later)
    if (!task.env.contains(name)) out.argv.push_back("--env=" + name);
  out.env[kImageVariable] = task.image;
  std::vector<std::string> mounts = without_nested(task.directories);
  std::string gpus;
  for (const std::string& device : task.devices) {
    if (device.starts_with(kCdiPrefix)) gpus += (gpus.empty() ? "" : ",") + device.substr(kCdiPrefix.size());
    else mounts.push_back(device);
  }
  // enroot's own way to NVIDIA's GPUs; else it would follow the image, which may ask for all.
  out.argv.push_back("--env=NVIDIA_VISIBLE_DEVICES=" + (gpus.empty() ? "void" : gpus));
  if (!gpus.empty()) out.argv.emplace_back("--env=NVIDIA_DRIVER_CAPABILITIES=compute,utility");
  for (const std::string& path : mounts) {
    if (path.find_first_of(": \t\n") != std::string::npos)
      return tl::unexpected<Error>(cannot(task, in_quotes(path) + " cannot be mounted in it", "use a path without blanks and colons"));
    if (std::ranges::find(kAlwaysThere, path) == kAlwaysThere.end()) out.argv.push_back("--mount=" + path + ":" + path);
  }
  out.argv.insert(out.argv.end(), {"--", directory_of(task.image)});
  out.argv.insert(out.argv.end(), task.argv.begin(), task.argv.end());
  return out;
}

// Where enroot keeps images is a matter of its configuration.
constexpr const char* kFindImages =
    "p=$1 i=$2; d=$(\"$p\" info | sed -n 's/^ *ENROOT_DATA_PATH=//p'); "
    "[ -n \"$d\" ] || { echo 'enroot info names no ENROOT_DATA_PATH' >&2; exit 125; }; ";

std::vector<std::string> look_enroot(const std::string& program, const std::string& image) {
  return {"/bin/sh", "-c",    std::string(kFindImages) + "enroot-nsenter --user --mount true || exit 125; [ -d \"$d/$i\" ]",
          "dtrain",  program, directory_of(image)};
}

// All that a pull makes is in one directory, until it is whole; what an older one has left is removed. Layers go to enroot's cache, which
// stays: those that are newer than the pull are what it has fetched.
std::vector<std::string> pull_enroot(const std::string& program, const std::string& image) {
  return {"/bin/sh",
          "-c",
          std::string(kFindImages) +
              "w=$d/.pull+$i; clear() { [ ! -e \"$w\" ] || { chmod -R u+rwX \"$w\"; rm -rf \"$w\"; }; }; clear; mkdir -p \"$w\" && "
              ": >\"$w/.began\" && e=$(\"$p\" info | sed -n 's/^ *ENROOT_CACHE_PATH=//p') && "
              "{ while sleep 2 && [ -d \"$w\" ]; do find \"$w/.began\" \"$e\" -maxdepth 1 -type f \\( -name .began -o -newer \"$w/.began\" "
              "\\) -exec du -ck {} + | tail -n 1; done 2>/dev/null & } && "
              "TMPDIR=\"$w\" ENROOT_TEMP_PATH=\"$w\" ENROOT_DATA_PATH=\"$w\" ENROOT_NATIVE_OVERLAYFS=yes \"$p\" load --name root \"$3\" && "
              "mv -T \"$w/root\" \"$d/$i\"; c=$?; clear; exit $c",
          "dtrain",
          program,
          directory_of(image),
          uri_of(image)};
}

bool no_registry_has(std::string_view image) { return image.starts_with("localhost/"); }

constexpr std::string_view kGivePassword = "put a password into ~/.config/enroot/.credentials there, or correct its name";
constexpr std::array<PullFault, 7> kPullFaults = {{
    {"No space left on device", PullFault::Then::elsewhere, "free space there, or remove images as that user with enroot"},
    {"Disk quota exceeded", PullFault::Then::elsewhere, "free space there, or remove images as that user with enroot"},
    {"error code: 404", PullFault::Then::never, "correct its name, or push it to its registry"},
    {"error code: 401", PullFault::Then::never, kGivePassword},
    {"error code: 403", PullFault::Then::never, kGivePassword},
    {"Invalid image reference", PullFault::Then::never, "write it as REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST"},
    {"", PullFault::Then::again, "pull it there as that user with enroot"},
}};

}  // namespace

extern const ContainerEngine kEnroot;
const ContainerEngine kEnroot{"enroot",    "unsquashfs", "install enroot (docs/images.md), and start the agent again",
                              false,       run_enroot,   look_enroot,
                              1,           pull_enroot,  no_registry_has,
                              kPullFaults, kMark};

}  // namespace dtrain::job
