#include "agent/proc/task_of_process.h"

#include <charconv>
#include <optional>

#include "agent/base/small_file.h"

namespace dtrain::proc {
namespace {

struct Process {
  std::string name;
  pid_t parent = 0;
};

std::optional<Process> look(const std::string& directory) {
  const auto stat = read_small_file(directory + "/stat");
  if (!stat) return std::nullopt;
  // "4711 (a name) S 4710 ...": the name may contain anything, parentheses too.
  const auto open = stat->find('('), close = stat->rfind(") ");
  if (open == std::string::npos || close == std::string::npos || close < open || close + 4 >= stat->size()) return std::nullopt;
  Process process{stat->substr(open + 1, close - open - 1), 0};
  const char* parent = stat->data() + close + 4;
  if (std::from_chars(parent, stat->data() + stat->size(), process.parent).ec != std::errc()) return std::nullopt;
  return process;
}

// True for a shim of this agent. Another agent's shims do not count: an agent may itself run in a task of a larger
// cluster. Anybody's process may have this name and argument; only one that is the agent's user in every respect was
// started by the agent.
bool is_shim(const Process& process, const std::string& directory, const std::string& tasks_dir, uid_t agent) {
  if (process.name != "dtrain-shim") return false;
  const std::string uid = std::to_string(agent);
  const std::string all = "\nUid:\t" + uid + "\t" + uid + "\t" + uid + "\t" + uid + "\n";
  if (read_small_file(directory + "/status").value_or("").find(all) == std::string::npos) return false;
  return read_small_file(directory + "/cmdline").value_or("").find(tasks_dir + "/") != std::string::npos;
}

}  // namespace

std::optional<pid_t> ancestor_of(pid_t pid, const std::function<bool(pid_t)>& is_one, const std::string& proc) {
  for (int i = 0; i < kMostAncestors && pid > 1; ++i) {
    if (is_one(pid)) return pid;
    const auto process = look(proc + "/" + std::to_string(pid));
    if (!process) return std::nullopt;
    pid = process->parent;
  }
  return std::nullopt;
}

bool runs_in_task(pid_t pid, const std::string& tasks_dir, const std::string& proc, uid_t agent) {
  pid_t at = pid;
  for (int i = 0; i < kMostAncestors; ++i) {
    if (at <= 1) return false;
    const std::string directory = proc + "/" + std::to_string(at);
    const auto process = look(directory);
    if (!process && at == pid) return true;
    if (process && is_shim(*process, directory, tasks_dir, agent)) return true;
    at = process ? process->parent : pid;  // an ancestor ended meanwhile: its children have another parent now
  }
  return true;
}

}  // namespace dtrain::proc
