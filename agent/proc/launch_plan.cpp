#include "agent/proc/launch_plan.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/account/host_user.h"
#include "agent/base/small_file.h"
#include "agent/proc/assignment_dir.h"
#include "agent/proc/container_host.h"
#include "agent/proc/error_files.h"
#include "agent/proc/record.h"
#include "agent/proc/stage_work.h"

namespace dtrain::proc {

namespace {

constexpr std::size_t kSocketPathBytes = 107;
constexpr std::size_t kTemporaryPathBytes = kSocketPathBytes - 40;  // Python's multiprocessing makes sockets of 32 more in it
constexpr const char* kDefaultShell = "/bin/sh";                    // as passwd(5) says of an entry without one

std::string hex(std::uint64_t number) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text.push_back(kDigits[number >> shift & 15]);
  return text;
}

}  // namespace

const std::map<std::string, int>& limit_resources() {
  static const std::map<std::string, int> names = {{"as", RLIMIT_AS},         {"core", RLIMIT_CORE},   {"cpu", RLIMIT_CPU},
                                                   {"data", RLIMIT_DATA},     {"fsize", RLIMIT_FSIZE}, {"memlock", RLIMIT_MEMLOCK},
                                                   {"nofile", RLIMIT_NOFILE}, {"nproc", RLIMIT_NPROC}, {"stack", RLIMIT_STACK}};
  return names;
}

Result<LaunchFile> plan_launch(const RunnerOptions& options, const task::ShimSpec& spec, const std::string& directory,
                               AttemptNumber last_attempt, bool directory_is_new) {
  LaunchFile launch;
  const auto user = account::find_user(spec.user);
  if (!user) return fail(user.error());
  launch.agent_uid = ::geteuid();
  if (launch.agent_uid != 0 && user->uid != launch.agent_uid)
    return fail(ErrorCode::refused, "could not launch " + spec.id.text() + ": only an agent of root can run tasks of another user",
                "run dtraind as root, or submit as its own user");
  launch.switch_user = launch.agent_uid == 0;
  launch.uid = user->uid;
  launch.gid = user->gid;
  launch.groups = user->groups;
  launch.argv = spec.argv;
  launch.env = spec.env;
  launch.ranks = spec.ranks;
  launch.first_leads = spec.first_leads;
  if (!spec.ranks.empty())  // one variable of that name alone
    for (const auto& [name, value] : spec.ranks.front()) launch.env.erase(name);
  launch.work_dir = spec.work_dir;
  // Variables that only this host knows. Those of the job or of tasks.passEnv are there already, and win.
  launch.env.insert(options.variables.begin(), options.variables.end());
  // In an image home and shell are the image's.
  if (!spec.image) launch.env.try_emplace("HOME", user->home.empty() ? spec.work_dir : user->home);
  if (!spec.image) launch.env.try_emplace("SHELL", user->shell.empty() ? kDefaultShell : user->shell);
  const std::string temporary = job_temporary(options.work_root, spec.id.job);
  if (!options.work_root.empty() && temporary.size() <= kTemporaryPathBytes && ::access(temporary.c_str(), F_OK) == 0)
    launch.env.try_emplace("TMPDIR", temporary);
  for (const char* name : {"USER", "LOGNAME"})
    if (!user->name.empty()) launch.env.try_emplace(name, user->name);
  launch.notify = directory + "/notify";
  // A task in an image would not find the path.
  if (spec.image || launch.notify.size() > kSocketPathBytes || (launch.switch_user && !account::can_reach(*user, launch.notify))) {
    std::uint64_t random = 0;
    if (::getrandom(&random, sizeof(random), 0) != sizeof(random))
      return fail(ErrorCode::io, "could not launch " + spec.id.text() + ": no randomness: " + cause_of(errno));
    launch.notify = "@dtrain/" + hex(random);
  }
  if (!spec.error_file.empty() && !launch.env.contains(spec.error_file)) {
    const auto errors = make_error_directory(launch, directory);
    if (!errors) return fail(errors.error());
    if (!errors->empty()) launch.error_file = spec.error_file + "=" + *errors;
  }
  launch.signal_main = spec.signal_to == job::SignalTo::main;
  launch.stop_grace = spec.stop_grace;
  launch.lease = spec.lease;
  launch.epoch = spec.epoch;
  if (spec.lease > Duration{0} && ::getrandom(&launch.first_nonce, sizeof(launch.first_nonce), 0) != sizeof(launch.first_nonce))
    return fail(ErrorCode::io, "could not launch " + spec.id.text() + ": no randomness: " + cause_of(errno));
  launch.address = spec.address;
  launch.port = spec.port;
  launch.cpus = spec.cpus;
  launch.numa_node = spec.numa_node;
  launch.last_attempt = last_attempt;
  if (!directory_is_new) {
    // It may have been started by an earlier agent without list() seeing it.
    if (const auto state = read_record(directory, "state")) launch.last_attempt = std::max(launch.last_attempt, state->fixed.attempt);
    launch.first_log = next_log_number(directory);
  }
  launch.log_files = options.log_files;
  launch.log_file_bytes = options.log_file_bytes;
  for (const auto& [name, value] : options.ulimits) launch.rlimits.emplace_back(limit_resources().at(name), value);
  if (spec.image)
    if (const Status put = put_into_image(options, spec, *user, launch); !put) return fail(put.error());
  return launch;
}

}  // namespace dtrain::proc
