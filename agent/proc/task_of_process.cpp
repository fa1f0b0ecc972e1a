#include "agent/proc/task_of_process.h"

#include <charconv>
#include <optional>

#include "agent/proc/small_file.h"

namespace dtrain::proc {
namespace {

struct Process {
  std::string name;
  pid_t parent = 0;
};

std::optional<Process> look(const std::string& directory) {
  const auto stat = read_small_file(directory + "/stat");
  if (!stat) return std::nullopt;
  // "4711 (a name) S 4710 ...": the name may hold anything, parentheses too.
  const auto open = stat->find('('), close = stat->rfind(") ");
  if (open == std::string::npos || close == std::string::npos || close < open || close + 4 >= stat->size()) return std::nullopt;
  Process process{stat->substr(open + 1, close - open - 1), 0};
  const char* parent = stat->data() + close + 4;
  if (std::from_chars(parent, stat->data() + stat->size(), process.parent).ec != std::errc()) return std::nullopt;
  return process;
}

// Of a shim of ours, of a process named so; "" of others. Another agent's is no business of ours: an agent may itself run in a task of a
// larger cluster.
std::string assignment_of_shim(const std::string& directory, const std::string& tasks_dir) {
  const std::string arguments = read_small_file(directory + "/cmdline").value_or("");
  const std::size_t at = arguments.find(tasks_dir + "/");
  return at == std::string::npos ? "" : arguments.c_str() + at + tasks_dir.size() + 1;
}

}  // namespace

std::optional<std::string> task_of_process(pid_t pid, const std::string& tasks_dir, const std::string& proc) {
  for (int i = 0; i < kMostAncestors && pid > 1; ++i) {
    const std::string directory = proc + "/" + std::to_string(pid);
    const auto process = look(directory);
    if (!process) return std::nullopt;
    if (process->name == "dtrain-shim")
      if (const std::string assignment = assignment_of_shim(directory, tasks_dir); !assignment.empty()) return assignment;
    pid = process->parent;
  }
  return std::nullopt;
}

bool runs_in_task(pid_t pid, const std::string& tasks_dir, const std::string& proc) {
  pid_t at = pid;
  for (int i = 0; i < kMostAncestors; ++i) {
    if (at <= 1) return false;
    const std::string directory = proc + "/" + std::to_string(at);
    const auto process = look(directory);
    if (!process && at == pid) return true;
    if (process && process->name == "dtrain-shim" && !assignment_of_shim(directory, tasks_dir).empty()) return true;
    at = process ? process->parent : pid;  // an ancestor ended meanwhile: its children have another one now
  }
  return true;
}

}  // namespace dtrain::proc
