#include "agent/host/discover_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>

namespace dtrain::host {

Result<Child> start_child(const std::string& program, std::vector<std::string> arguments) {
  const auto not_started = [](const std::string& cause, const std::string& next) {
    return fail(ErrorCode::unavailable, "could not discover the hardware: " + cause, next);
  };
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::string library_path = "LD_LIBRARY_PATH=";
  if (const char* value = ::getenv("LD_LIBRARY_PATH")) library_path += value;
  std::string path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin", language = "LC_ALL=C";
  char* environment[] = {path.data(), language.data(), library_path.size() > 16 ? library_path.data() : nullptr, nullptr};

  int output[2], errors[2];
  if (::pipe2(output, O_CLOEXEC) != 0) return not_started(std::string("pipe: ") + ::strerror(errno), "");
  Child child{-1, UniqueFd(output[0]), UniqueFd()};
  const UniqueFd output_end(output[1]);
  if (::pipe2(errors, O_CLOEXEC) != 0) return not_started(std::string("pipe: ") + ::strerror(errno), "");
  child.errors = UniqueFd(errors[0]);
  const UniqueFd errors_end(errors[1]);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output_end.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, errors_end.get(), STDERR_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int code = ::posix_spawn(&child.pid, program.c_str(), &actions, &attributes, argv.data(), environment);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (code != 0) return not_started("could not run " + program + ": " + ::strerror(code), "install or build all of dtrain");
  return child;
}

}  // namespace dtrain::host
