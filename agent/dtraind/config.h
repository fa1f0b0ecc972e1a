// What the operator configured: /etc/dtrain/dtraind.yaml, then flags and --set on top. config/dtraind.yaml lists
// every key with its default and meaning.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/result.h"
#include "common/base/time.h"
#include "common/job/manifest.h"
#include "common/node/access.h"
#include "common/wire/manifest_settings.h"

namespace dtrain::daemon {

inline constexpr const char* kDefaultConfigFile = "/etc/dtrain/dtraind.yaml";
inline constexpr const char* kDefaultKeyFile = "/etc/dtrain/cluster.key";

enum class Launch : unsigned char { automatic, systemd, direct };
using node::Access;
using node::Role;

struct PortRange {
  std::uint16_t first = 20000, last = 29999;
};
struct FreeSpace {  // "5%" or "10Gi"
  std::uint32_t percent = 5;
  std::uint64_t bytes = 0;  // if not 0, used instead of percent
};

struct Config {
  struct {
    std::string name = "dtrain";
    bool found = false;
    std::uint32_t expect = 0;  // 0: not given
  } cluster;
  struct {
    std::string name;  // "": the host's name
    std::map<std::string, std::string> labels;
    bool council_never = false;
  } node;
  struct {
    std::string listen = "0.0.0.0:7400";
    bool listen_given = false;
    std::string advertise, task_address;  // "": chosen (agent/host/address.h)
    PortRange task_ports;
    std::vector<std::string> join;
    std::string key_file = kDefaultKeyFile;
    bool key_file_given = false;
  } network;
  struct {
    std::string data = "/var/lib/dtrain", run = "/run/dtrain", work;  // work "": <data>/work
    bool data_given = false, run_given = false;
  } paths;
  struct {
    std::optional<std::uint32_t> gpus;  // number of pretended GPUs; unset: the real ones
    std::string topology;
    std::vector<std::string> exclude_gpus;
    std::optional<std::uint64_t> reserve_cpu_millis, reserve_memory;
  } resources;
  struct {
    Launch launch = Launch::automatic;
    std::string cgroup;       // "": the agent's own
    bool cpu_binding = true;  // tasks that ask for whole CPUs get CPUs of their own
    bool allow_root = false;
    bool standbys = true;  // beside tasks whose role has them (docs/warm-standby.md)
    std::vector<std::string> pass_env;
    std::vector<std::string> devices;              // devices that all tasks may open, besides those that training is known to need
    std::map<std::string, std::uint64_t> ulimits;  // filled with the defaults by load_config
    std::uint64_t log_file_bytes = 64ull << 20;
    std::uint32_t log_files = 8;
    Duration log_keep_for = std::chrono::hours(24 * 7);
    std::string prolog, epilog;
    std::string image_engine;  // of tasks in images; "": the first that this host has; kNoEngine: none
  } tasks;
  struct {
    std::vector<std::string> command;
    Duration every = 60s, timeout = 10s;
  } health_check;
  struct {
    Duration lease = 10s, down_grace = 15s, agent_grace = 30s, stop_after = 1h, restore_wait = 10min;
  } timing;
  Access access;
  std::map<std::string, std::string> client_keys;  // access.keys: public key (64 hex digits, lower case) -> its user
  struct {
    std::uint64_t checkpoint_rate = 200ull << 20;  // bytes a second
    std::uint64_t package_cache = 20ull << 30;
    FreeSpace min_free;
  } storage;
  wire::ManifestSettings manifests;  // volumes, priorityClasses, tasks.imageFallback
  std::string http;                  // "": off
  LogLevel log_level = LogLevel::info;
  std::vector<std::string> without_effect;  // keys that were given but have no effect in this version
  bool dev = false;
};

inline constexpr std::string_view kNoEngine = "none";

// What the command line adds: path of a key and its value, in order.
using Sets = std::vector<std::pair<std::string, std::string>>;

struct LoadedConfig {
  Config config;
  std::vector<job::FileError> errors;  // empty: config is valid
};

// `text`: content of the file; "" when there is none. Reports all mistakes at once.
LoadedConfig read_config(const std::string& text, const std::string& file_name, const Sets& sets);

// Reads `file`, or, if that is "", the default file if it exists. ErrorCode::not_found: `file` does not exist.
Result<LoadedConfig> load_config(const std::string& file, const Sets& sets);

}  // namespace dtrain::daemon
