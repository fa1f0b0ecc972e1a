// The launch file of an assignment (dtrain-shim/protocol.h) as the agent writes and reads it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/task/shim_spec.h"

namespace dtrain::proc {

struct LaunchFile {
  bool switch_user = false;
  std::uint32_t agent_uid = 0;
  std::uint32_t uid = 0, gid = 0;
  std::vector<std::uint32_t> groups;
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;
  std::vector<std::map<std::string, std::string>> ranks;  // variables of each process, of the same names; empty: one process
  bool first_leads = false;                               // the first of these leads the others, unless it was a standby
  std::string work_dir;
  std::string notify;         // value of NOTIFY_SOCKET
  std::string cgroup;         // the assignment's v2 cgroup; "": none
  std::string memory_cgroup;  // its v1 memory cgroup; "": none
  std::string address;
  std::uint16_t port = 0;  // 0: none
  AttemptNumber last_attempt = 0;
  std::uint32_t first_log = 0, log_files = 0;
  std::uint64_t log_file_bytes = 0;
  std::vector<std::pair<int, std::uint64_t>> rlimits;  // RLIMIT_*, soft and hard
  Duration lease{0};                                   // 0: no lease
  std::uint64_t epoch = 0, first_nonce = 0;
  // The shim is a service of systemd, which makes its cgroups and puts it there; on SIGTERM the task, too, gets stop_signal.
  bool is_unit = false;
  std::int32_t stop_signal = 15;
  bool signal_main = false;         // a stop that the shim passes on goes to the main process alone
  Duration stop_grace{0};           // and then the grace for processes that outlive the main one
  std::vector<std::uint32_t> cpus;  // CPUs of the task's own, below 8 * shim::kCpuBytes; empty: it may use all
  std::int32_t numa_node = -1;      // memory of this node is used first; -1: any
  bool is_standby = false;          // the shim has no assignment yet: its processes prepare for one (standbys.h)
  std::string error_file;           // "NAME=", and the beginning of the path of each rank's error file (error_files.h); "": none
  std::uint32_t target = 0;         // index in argv of the first argument that a standby is given; 0: none can run it
};

Result<std::string> encode_launch(const LaunchFile& launch);
Result<LaunchFile> decode_launch(std::string_view bytes);
Result<LaunchFile> read_launch(const std::string& directory);

}  // namespace dtrain::proc
