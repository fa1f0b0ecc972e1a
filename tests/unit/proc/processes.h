// Test helpers: what became of a process that another one left, and which children one has.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace dtrain::proc::testing {

// Within some seconds. A zombie is dead: nobody reaps it where PID 1 does not.
inline bool dies(pid_t pid) {
  for (int i = 0; i < 1000; ++i) {
    if (::kill(pid, 0) != 0) return true;
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(stat, line);
    if (line.find(") Z ") != std::string::npos) return true;
    ::usleep(10'000);
  }
  return false;
}

// The process id that a script writes into a file of its own making; 0: it did not within some seconds.
inline pid_t written_pid(const std::string& path) {
  for (int i = 0; i < 1000; ++i) {
    std::ifstream file(path);
    std::string line;
    if (std::getline(file, line) && !file.eof()) return std::stoi(line);
    ::usleep(10'000);
  }
  return 0;
}

// In order of their ids; zombies are none.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    std::getline(stat, line);
    const std::size_t end = line.rfind(") ");  // then the state and the parent
    if (end == std::string::npos || line[end + 2] == 'Z') continue;
    if (std::stoi(line.substr(end + 4)) == parent) found.push_back(std::stoi(name));
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace dtrain::proc::testing
