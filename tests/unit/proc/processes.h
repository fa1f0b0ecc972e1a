// Test helpers: what became of a process that another one left.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <fstream>
#include <string>

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

}  // namespace dtrain::proc::testing
