// The launch file in the shim's memory: read once (the file may be replaced or removed later), with argv and env
// ready for execve.
#pragma once

#include "agent/dtrain-shim/protocol.h"
#include "agent/dtrain-shim/sys.h"

namespace dtrain::shim {

struct Launch {
  LaunchHeader header;
  char** argv = nullptr;
  char** env = nullptr;  // env_count entries, then the per-attempt ones that the user did not set
  const uint32_t* groups = nullptr;
  const char* cpus = nullptr;  // header.cpu_bytes bytes
  const char* work_dir = "";
  const char* notify = "";  // value of NOTIFY_SOCKET
  const char* cgroup = "";
  const char* memory_cgroup = "";
  const char* path = nullptr;  // PATH of the task's environment

  // Reads kLaunchFile of the current directory. False: errno says why (EBADMSG: it is no launch file).
  bool load();
  // True if no launch file of this process needed memory beyond what every shim has.
  static bool is_short();
  // Puts "NOTIFY_SOCKET=..." into the environment unless the user set it; the text must stay.
  void set_notify(char* assignment);
  // How many processes an attempt is.
  uint32_t processes() const { return header.rank_count > 0 ? header.rank_count : 1; }
  // Puts the variables of that process into the environment of the next start; after set_attempt().
  void set_rank(uint32_t rank);
  // Puts DTRAIN_ATTEMPT=n into the environment of the next start unless the user set it.
  void set_attempt(uint32_t attempt);

 private:
  bool has(const char* name) const;
  void append(char* assignment);
  char** rank_env_ = nullptr;
  char* error_file_ = nullptr;  // the variable; nullptr: there is none
  size_t error_size_ = 0;       // of it, without ATTEMPT.RANK
  Text<32> attempt_;
  uint32_t number_ = 0;  // of the attempt
  uint32_t env_size_ = 0;
  uint32_t attempt_slot_ = 0;
};

}  // namespace dtrain::shim
