#include "agent/proc/stage_work.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "agent/account/as_user.h"
#include "agent/base/unique_fd.h"
#include "agent/proc/become_user.h"
#include "agent/proc/helper_program.h"
#include "agent/proc/port_check.h"

namespace dtrain::proc {

namespace fs = std::filesystem;

namespace {

constexpr const char* kOriginHead = "dtrain-copy 1";  // first line of an origin file: its kind and version
constexpr mode_t kRootMode = 0755;                    // of work_root: users pass through
constexpr mode_t kCopyMode = 0700;                    // of a copy: for its user only

std::string hidden(const StageDirs& dirs, JobId job, const char* suffix) { return dirs.work_root + "/." + std::to_string(job) + suffix; }
std::string origin_path(const StageDirs& dirs, JobId job) { return hidden(dirs, job, ".origin"); }

Error os_error(const std::string& what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return Error{full ? ErrorCode::limit : ErrorCode::io, what + ": " + std::strerror(error),
               full ? "free space on that file system" : "check permissions and disk of this host"};
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

// With the system's rm, which no symbolic link in the tree misleads; files and empty directories do not need it.
Status remove_trees(const std::vector<std::string>& paths) {
  std::vector<std::string> present;
  for (const std::string& path : paths)
    if (::remove(path.c_str()) != 0 && errno != ENOENT) present.push_back(path);
  if (present.empty()) return {};
  const auto with = [&](std::vector<std::string> argv) {
    argv.emplace_back("--");
    argv.insert(argv.end(), present.begin(), present.end());
    return run_helper(HelperProgram{std::move(argv), {}, -1});
  };
  auto removed = with({"rm", "-rf", "--one-file-system"});
  if (removed && removed->status != 0 && ::geteuid() != 0) {
    // Without root, directories that the job made unwritable prevent the removal.
    if (const auto opened = with({"chmod", "-R", "u+rwX"}); !opened) return fail(opened.error());
    removed = with({"rm", "-rf", "--one-file-system"});
  }
  if (!removed) return fail(removed.error());
  if (removed->status != 0)
    return fail(ErrorCode::io, "could not remove " + present.front() + ": " + removed->errors, "remove it by hand and check that disk");
  return {};
}

// Digest of the package that the present copy was made from; "": none; nullopt: unknown.
std::optional<std::string> read_origin(const std::string& path) {
  if (!exists(path)) return "";
  std::ifstream file(path);
  std::string head, digest;
  if (!std::getline(file, head) || head != kOriginHead) return std::nullopt;
  std::getline(file, digest);
  return digest;
}

// A copy without a package has no such file: most jobs have no package.
Status write_origin(const std::string& path, const std::string& digest) {
  if (digest.empty()) {
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
    return fail(os_error("could not remove " + path, errno));
  }
  const std::string text = std::string(kOriginHead) + "\n" + digest + "\n";
  const std::string temporary = path + ".new";
  const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return fail(os_error("could not write " + path, error));
  }
  return {};
}

bool is_digest(const std::string& text) { return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string::npos; }

// Unpacks as the user: whatever a package contains, it can do no more than its owner. `lacks`: it failed because the
// blob is missing, which may arrive at any moment.
Status unpack(const StageDirs& dirs, const std::string& digest, const account::HostUser& user, const std::string& into, bool& lacks) {
  const std::string what = "package " + digest.substr(0, 12);
  if (!is_digest(digest)) return fail(ErrorCode::invalid, what + " has no valid digest");
  const std::string path = dirs.blobs_dir + "/" + digest;
  const UniqueFd blob(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!blob) {
    lacks = errno == ENOENT;
    Error error = os_error(what + " cannot be read from " + path, errno);
    error.next = "submit the job again with its package";
    return fail(std::move(error));
  }
  const auto done = run_helper(
      HelperProgram{{"tar", "--extract", "--file=-", "--directory=" + into, "--no-same-owner", "--same-permissions", "--no-overwrite-dir"},
                    user,
                    blob.get()});
  if (!done) return fail(done.error());
  if (done->status != 0) {
    // tar does not always name the cause ("Wrote only 512 of 10240 bytes"): ask the file system too.
    struct statvfs space {};
    const bool known = ::statvfs(into.c_str(), &space) == 0;
    const bool full = (known && (space.f_bavail == 0 || (space.f_files > 0 && space.f_favail == 0))) ||
                      done->errors.find(std::strerror(ENOSPC)) != std::string::npos ||
                      done->errors.find(std::strerror(EDQUOT)) != std::string::npos;
    const std::string said = done->errors.substr(0, done->errors.find('\n'));
    if (full)
      return fail(ErrorCode::limit, what + " cannot be unpacked: no space left on the disk (" + said + ")",
                  "free space on the file system of " + dirs.work_root);
    return fail(ErrorCode::damaged, what + " cannot be unpacked: " + said, "the package may be damaged: submit the job again with it");
  }
  const UniqueFd directory(::open(into.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // After a crash of the host no copy may remain that has empty files and looks complete.
  if (!directory || ::syncfs(directory.get()) != 0) return fail(os_error(what + " cannot be written to disk", errno));
  return {};
}

Status make_own(const std::string& directory, const account::HostUser& user) {
  if (::mkdir(directory.c_str(), kCopyMode) != 0 || (::geteuid() == 0 && ::chown(directory.c_str(), user.uid, user.gid) != 0))
    return fail(os_error("directory " + directory + " cannot be made", errno));
  return {};
}

Status make_copy(const StageDirs& dirs, const node::Stage& stage, const account::HostUser& user, bool& lacks_package) {
  const std::string copy = job_copy(dirs, stage.id.job);
  const std::string partial = hidden(dirs, stage.id.job, ".partial");
  const std::string old = hidden(dirs, stage.id.job, ".old");
  std::error_code error;
  if (!fs::exists(dirs.work_root, error)) {
    fs::create_directories(dirs.work_root, error);
    if (error) return fail(os_error("directory " + dirs.work_root + " cannot be made", error.value()));
    ::chmod(dirs.work_root.c_str(), kRootMode);
  }
  if (Status removed = remove_trees({partial, old}); !removed) return removed;
  if (Status made = make_own(partial, user); !made) return made;
  if (!stage.package_digest.empty())
    if (Status unpacked = unpack(dirs, stage.package_digest, user, partial, lacks_package); !unpacked) {
      (void)remove_trees({partial});  // the first failure is the one to report
      return unpacked;
    }
  // In this order no crash leaves a copy with a wrong origin.
  if (exists(copy) && ::rename(copy.c_str(), old.c_str()) != 0) return fail(os_error("directory " + copy + " cannot be replaced", errno));
  if (Status written = write_origin(origin_path(dirs, stage.id.job), stage.package_digest); !written) {
    (void)remove_trees({partial});
    return written;
  }
  if (::rename(partial.c_str(), copy.c_str()) != 0) return fail(os_error("directory " + copy + " cannot be made", errno));
  return remove_trees({old});
}

// The copy is made once and then kept: the job's tasks share it, and what they wrote there is theirs. Only a restart
// with another package (fresh, other digest) replaces it.
Status ensure_copy(const StageDirs& dirs, const node::Stage& stage, const account::HostUser& user, bool& lacks_package) {
  bool present = exists(job_copy(dirs, stage.id.job));
  if (present && stage.fresh) {
    const auto origin = read_origin(origin_path(dirs, stage.id.job));
    present = origin && *origin == stage.package_digest;
  }
  if (!present)
    if (Status made = make_copy(dirs, stage, user, lacks_package); !made) return made;
  const std::string temporary = job_temporary(dirs.work_root, stage.id.job);
  return exists(temporary) ? Status() : make_own(temporary, user);
}

bool leaves_upwards(const std::string& path) {
  const fs::path parts(path);
  return std::any_of(parts.begin(), parts.end(), [](const fs::path& part) { return part == ".."; });
}

Result<std::string> start_directory(const StageDirs& dirs, const node::Stage& stage) {
  const std::string copy = job_copy(dirs, stage.id.job);
  const bool absolute = stage.work_dir.starts_with('/');
  if (!absolute && leaves_upwards(stage.work_dir))
    return fail(ErrorCode::refused, "working directory " + stage.work_dir + " leads out of the package",
                "give a path inside the package, or an absolute one");
  std::string path = absolute ? stage.work_dir : (fs::path(copy) / stage.work_dir).lexically_normal().string();
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  struct stat info {};
  if (!real || ::stat(path.c_str(), &info) != 0) {
    const int error = errno;
    const std::string shown = absolute ? stage.work_dir : stage.work_dir + " (in the package)";
    // It may be one of the image.
    if (error == ENOENT && absolute && !stage.image.empty()) return path;
    if (error == ENOENT)
      return fail(ErrorCode::not_found, "working directory " + shown + " does not exist",
                  absolute ? "create it on each host, or send its files along: spec.package (for a command: --package .)"
                           : "add it to the package, or change workDir");
    return fail(ErrorCode::refused,
                "working directory " + path + " cannot be entered by user " + stage.user.name + ": " + std::strerror(error),
                "let the user pass every directory above it");
  }
  if (!S_ISDIR(info.st_mode)) return fail(ErrorCode::invalid, "working directory " + path + " is not a directory", "change workDir");
  if (::stat((path + "/.").c_str(), &info) != 0)
    return fail(ErrorCode::refused,
                "working directory " + path + " cannot be entered by user " + stage.user.name + ": " + std::strerror(errno),
                "change its permissions, or workDir");
  if (!absolute && path != copy) {
    const std::unique_ptr<char, decltype(&std::free)> top(::realpath(copy.c_str(), nullptr), &std::free);
    const std::string inside = top ? std::string(top.get()) : copy;
    const std::string target = real.get();
    if (target != inside && !target.starts_with(inside + "/"))
      return fail(ErrorCode::refused, "working directory " + stage.work_dir + " leads out of the package, to " + target,
                  "give a path inside the package, or an absolute one");
  }
  return path;
}

Status check_paths(const node::Stage& stage) {
  for (const std::string& path : stage.require_paths) {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) continue;
    if (errno == ENOENT || errno == ENOTDIR)
      return fail(ErrorCode::unavailable, "required path " + path + " does not exist on this host", "provide it here, or use other hosts");
    return fail(os_error("required path " + path + " cannot be reached", errno));
  }
  return {};
}

// With the rights of the job's user, who owns what is made.
Status make_directories(const node::Stage& stage) {
  for (const std::string& path : stage.make_dirs) {
    std::error_code error;
    fs::create_directories(path, error);
    if (!error && fs::is_directory(path, error)) continue;
    Error cause = os_error("directory " + path + " cannot be made by user " + stage.user.name, error ? error.value() : ENOTDIR);
    cause.code = ErrorCode::unavailable;
    return fail(std::move(cause));
  }
  return {};
}

}  // namespace

std::string job_copy(const StageDirs& dirs, JobId job) { return dirs.work_root + "/" + std::to_string(job); }

bool is_brief(const StageDirs& dirs, const node::Stage& stage) {
  if (!stage.package_digest.empty() || stage.work_dir != "." || !stage.require_paths.empty() || !stage.make_dirs.empty()) return false;
  if (exists(job_copy(dirs, stage.id.job))) return !stage.fresh || !exists(origin_path(dirs, stage.id.job));
  return !exists(hidden(dirs, stage.id.job, ".partial")) && !exists(hidden(dirs, stage.id.job, ".old"));
}

std::vector<StageOutcome> perform_stages(const StageDirs& dirs, const std::vector<node::Stage>& stages, PortOwner owner) {
  std::vector<StageOutcome> outcomes;
  const auto refuse = [](StageOutcome& outcome, const Error& cause) {
    outcome.ok = false;
    outcome.error = Error{cause.code, "could not stage " + outcome.id.task.text() + ": " + cause.message, cause.next};
  };
  const Result<account::HostUser> user = find_user_to_become(stages.front().user);
  // Steps that need the agent's rights come first, for all tasks. A copy that could not be made is not tried again
  // for each task.
  Status copied;
  bool lacks_package = false;
  for (const node::Stage& stage : stages) {
    StageOutcome& outcome = outcomes.emplace_back();
    outcome.id = stage.id;
    outcome.ok = true;
    if (copied) copied = user ? ensure_copy(dirs, stage, *user, lacks_package) : Status(fail(user.error()));
    outcome.lacks_package = lacks_package;
    Status prepared = copied;
    if (prepared) {
      prepared = check_port(stage.address, stage.port, owner);
      if (!prepared) owner = PortOwner::user;  // one look is enough
    }
    if (!prepared) refuse(outcome, prepared.error());
    if (user) continue;
    // True for this host only: others may know the user, or permit root.
    outcome.host_refused = user.error().message;
    outcome.error.code = ErrorCode::unavailable;
  }
  if (!user) return outcomes;
  const auto rights = account::AsUser::enter(*user, stages.front().user.name);
  const node::Stage* looked = nullptr;
  Status paths;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (!outcomes[i].ok) continue;
    if (!rights) {
      refuse(outcomes[i], rights.error());
      continue;
    }
    // Tasks of one job mostly have the same paths, which are checked once.
    if (looked == nullptr || looked->require_paths != stages[i].require_paths || looked->make_dirs != stages[i].make_dirs) {
      paths = make_directories(stages[i]);
      if (paths) paths = check_paths(stages[i]);
    }
    looked = &stages[i];
    if (!paths) {
      refuse(outcomes[i], paths.error());
    } else if (auto directory = start_directory(dirs, stages[i]); !directory) {
      refuse(outcomes[i], directory.error());
    } else {
      outcomes[i].work_dir = std::move(*directory);
    }
  }
  return outcomes;
}

std::string job_temporary(const std::string& work_root, JobId job) { return work_root + "/." + std::to_string(job) + ".tmp"; }

bool no_temporary(const StageDirs& dirs, JobId job) { return ::rmdir(job_temporary(dirs.work_root, job).c_str()) == 0 || errno == ENOENT; }

Status perform_remove(const StageDirs& dirs, JobId job, node::JobFiles files) {
  std::vector<std::string> paths = {job_temporary(dirs.work_root, job)};
  if (files != node::JobFiles::temporary)
    paths.insert(paths.end(), {job_copy(dirs, job), hidden(dirs, job, ".partial"), hidden(dirs, job, ".old"), origin_path(dirs, job),
                               origin_path(dirs, job) + ".new"});
  if (files == node::JobFiles::logs && !dirs.tasks_dir.empty()) {
    const std::string prefix = std::to_string(job) + ".";
    std::error_code error;
    for (fs::directory_iterator at(dirs.tasks_dir, error), end; !error && at != end; at.increment(error))
      if (at->path().filename().string().starts_with(prefix)) paths.push_back(at->path().string());
    if (error && error != std::errc::no_such_file_or_directory)
      return fail(os_error("could not remove files of job " + std::to_string(job) + ": " + dirs.tasks_dir, error.value()));
  }
  return remove_trees(paths);
}

}  // namespace dtrain::proc
