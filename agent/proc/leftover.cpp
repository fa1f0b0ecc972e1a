#include "agent/proc/leftover.h"

#include <dirent.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "agent/base/small_file.h"

namespace dtrain::proc {

namespace {

constexpr std::size_t kEnvironmentBytes = 8 << 20;  // a longer environment is not looked at

// A zombie may have living threads, but has no other state and takes no signal.
bool stands_still(const std::string& process) {
  const std::string stat = read_small_file(process + "/stat").value_or("");
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && name_end + 2 < stat.size() &&
         std::string_view("TtZX").find(stat[name_end + 2]) != std::string_view::npos;
}

int signal_leftovers(const std::string& notify_socket, int signal) {
  if (notify_socket.empty()) return 0;
  // Variables are separated by NUL bytes; one in front makes the first like the others.
  const std::string wanted = std::string(1, '\0') + "NOTIFY_SOCKET=" + notify_socket + std::string(1, '\0');
  int found = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  for (const dirent* entry; proc && (entry = ::readdir(proc.get())) != nullptr;) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0 || pid == ::getpid()) continue;
    const auto text = read_small_file(std::string("/proc/") + entry->d_name + "/environ", kEnvironmentBytes);
    if (!text || (std::string(1, '\0') + *text).find(wanted) == std::string::npos) continue;
    if (signal == SIGSTOP && stands_still(std::string("/proc/") + entry->d_name)) continue;
    ++found;
    ::kill(pid, signal);
  }
  return found;
}

}  // namespace

int kill_leftovers(const std::string& notify_socket) { return signal_leftovers(notify_socket, SIGKILL); }
int stop_leftovers(const std::string& notify_socket) { return signal_leftovers(notify_socket, SIGSTOP); }

}  // namespace dtrain::proc
