#include "agent/dtraind/config.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>

#include "agent/host/address.h"
#include "agent/host/facts.h"
#include "agent/host/pci_address.h"
#include "agent/host/resolver.h"
#include "agent/store/file.h"
#include "common/base/limits.h"
#include "common/job/container_engine.h"
#include "common/job/manifest_input.h"
#include "common/job/map_reader.h"
#include "common/job/yaml_tree.h"
#include "common/wire/key_file.h"

namespace dtrain::daemon {
namespace {

using job::FileErrors;
using job::in_quotes;
using job::MapReader;
using job::YamlNode;

constexpr std::uint32_t kMostGpus = 64;           // pretended ones; they must fit into a node's facts
constexpr std::size_t kMostDevices = 64;          // each is a rule of every task's device filter
constexpr std::size_t kMostLabels = 64;           // of a node; the same
constexpr std::size_t kMostLabelBytes = 4 << 10;  // of their names and values together
constexpr std::size_t kMostClientKeys = 1024;
constexpr std::size_t kShownOfKey = 16;  // a whole wrong key may be a secret in the wrong place
constexpr std::uint32_t kMostNodes = 10'000;
constexpr std::uint32_t kMostLogFiles = 1000;
constexpr std::uint16_t kFewestTaskPorts = 16;
constexpr std::uint16_t kLastListenPort = 65'533;
constexpr Duration kShortestTiming = 100ms;
constexpr Duration kShortestLease = 3s;  // a task runs for all of it but the last second, and renews it meanwhile
constexpr std::uint64_t kSmallestLogFile = 64 << 10;

// ---------------------------------------------------------------- values with a reader of their own

template <class T>
std::optional<T> whole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

tl::unexpected<Error> wrong(const std::string& wanted, std::string_view text) {
  return fail(ErrorCode::invalid, "must be " + wanted + ", not " + in_quotes(text));
}

Result<PortRange> parse_ports(std::string_view text) {
  const auto dash = text.find('-');
  const auto first = whole<std::uint16_t>(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? std::nullopt : whole<std::uint16_t>(text.substr(dash + 1));
  if (!first || !last || *first < 1024 || *last < *first || *last - *first < kFewestTaskPorts - 1)
    return wrong("FIRST-LAST between 1024 and 65535 with at least " + std::to_string(kFewestTaskPorts) + " ports", text);
  return PortRange{*first, *last};
}

Result<FreeSpace> parse_free_space(std::string_view text) {
  if (text.ends_with('%')) {
    const auto percent = whole<std::uint32_t>(text.substr(0, text.size() - 1));
    if (!percent || *percent > 90) return wrong("0% to 90%, or an amount such as 10Gi", text);
    return FreeSpace{*percent, 0};
  }
  const auto bytes = job::parse_memory(text);
  if (!bytes) return wrong("0% to 90%, or an amount such as 10Gi", text);
  return *bytes == 0 ? FreeSpace{0, 0} : FreeSpace{0, *bytes};
}

Result<std::uint64_t> parse_rate(std::string_view text) {
  const bool per_second = text.ends_with("/s");
  const auto bytes = per_second ? job::parse_memory(text.substr(0, text.size() - 2)) : Result<std::uint64_t>(0);
  if (!per_second || !bytes || *bytes == 0) return wrong("an amount a second, such as 200Mi/s", text);
  return *bytes;
}

Result<std::uint64_t> parse_ulimit(std::string_view text) {
  if (text == "unlimited") return std::uint64_t{RLIM_INFINITY};
  if (const auto value = whole<std::uint64_t>(text)) return *value;
  return wrong("a whole number or unlimited", text);
}

Result<LogLevel> parse_level(std::string_view text) {
  if (text == "debug") return LogLevel::debug;
  if (text == "info") return LogLevel::info;
  if (text == "warn") return LogLevel::warn;
  if (text == "error") return LogLevel::error;
  return wrong("debug, info, warn or error", text);
}

Result<Launch> parse_launch(std::string_view text) {
  if (text == "auto") return Launch::automatic;
  if (text == "systemd") return Launch::systemd;
  if (text == "direct") return Launch::direct;
  return wrong("auto, systemd or direct", text);
}

Result<bool> parse_image_fallback(std::string_view text) {
  if (text == "host" || text == "none" || text.empty()) return text == "host";
  return wrong("host, none, or empty", text);
}

Result<std::string> parse_image_engine(std::string_view text) {
  if (text.empty() || text == kNoEngine || job::find_engine(text) != nullptr) return std::string(text);
  return wrong(job::engine_names() + ", none, or empty", text);
}

Result<Role> parse_role(std::string_view text) {
  if (text == "view") return Role::view;
  if (text == "submit") return Role::submit;
  if (text == "operate") return Role::operate;
  return wrong("view, submit or operate", text);
}

Result<bool> parse_council(std::string_view text) {
  if (text == "auto") return false;
  if (text == "never") return true;
  return wrong("auto or never", text);
}

Result<std::string> parse_node_name(std::string_view text) {
  if (text.empty() || host::is_node_name(std::string(text))) return std::string(text);
  return wrong("lower-case letters, digits and inner dashes, at most " + std::to_string(limits::kNameBytes), text);
}

// The agent uses this port and the two above it.
Result<std::string> parse_listen(std::string_view text) {
  auto endpoint = host::parse_endpoint(text);
  if (!endpoint || endpoint->port > kLastListenPort)
    return wrong("IP:PORT with a port up to " + std::to_string(kLastListenPort) + ", such as 10.0.0.11:7400", text);
  return std::string(text);
}

Result<std::string> parse_http(std::string_view text) {
  if (text.empty() || host::parse_endpoint(text)) return std::string(text);
  return wrong("IP:PORT, such as 10.0.0.11:8080", text);
}

Result<std::string> parse_absolute(std::string_view text) {
  if (text.starts_with('/')) return std::string(text);
  return wrong("an absolute path", text);
}

Result<std::string> parse_absolute_or_empty(std::string_view text) {
  return text.empty() ? Result<std::string>(std::string()) : parse_absolute(text);
}

// True for what systemd's DeviceAllow= accepts: anything else would fail every launch.
bool names_devices(std::string_view text) {
  const auto rest_of = [&](std::string_view prefix) { return text.starts_with(prefix) ? text.substr(prefix.size()) : ""; };
  const std::string_view path = rest_of("/dev/"), name = text.starts_with("char-") ? rest_of("char-") : rest_of("block-");
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";
  if (!path.empty())
    return path.find_first_not_of(std::string(kLetters) + "/") == path.npos && path.find("..") == path.npos && path.find("//") == path.npos;
  return !name.empty() && name.find_first_not_of(std::string(kLetters) + "*?") == name.npos;
}

Result<std::uint32_t> parse_gpus(std::string_view text) {
  const auto count = whole<std::uint32_t>(text);
  if (!count || *count > kMostGpus) return wrong("auto or a whole number up to " + std::to_string(kMostGpus), text);
  return *count;
}

// ---------------------------------------------------------------- sections

// Reads an optional value of a key with its own reader.
template <class T>
void optional_of(MapReader& map, const char* key, std::optional<T>& out, Result<T> (*parse)(std::string_view)) {
  T value{};
  if (map.parsed(key, value, parse)) out = value;
}

// Calls `read` on the section if it exists. An empty one ("tasks:") counts as missing.
template <class Read>
void section(MapReader& parent, const char* key, FileErrors& report, Read read) {
  const YamlNode* node = parent.node(key);
  if (!node || node->kind == YamlNode::Kind::null) return;
  MapReader map(*node, parent.path(key), report);
  read(map);
  map.done();
}

void at_least(MapReader& map, const char* key, Duration least, Duration& out, FileErrors& report) {
  Duration value = out;
  if (!map.duration(key, value)) return;
  if (value >= least) out = value;
  else report.add("out-of-range", map.path(key), "must be at least 100ms");
}

// `map`: the section node.
void check_labels(const MapReader& map, const std::map<std::string, std::string>& labels, FileErrors& report) {
  std::size_t bytes = 0;
  for (const auto& [name, value] : labels) {
    bytes += name.size() + value.size();
    if (!job::is_label_name(name) || (!value.empty() && !job::is_label_name(value)))
      report.add("out-of-range", map.path("labels"),
                 "label " + in_quotes(name + "=" + value) + " must be letters, digits, and inner - _ . /");
  }
  if (labels.size() > kMostLabels)
    report.add("limit", map.path("labels"),
               "must be at most " + std::to_string(kMostLabels) + " labels, not " + std::to_string(labels.size()));
  if (bytes > kMostLabelBytes)
    report.add(
        "limit", map.path("labels"),
        "must have at most " + std::to_string(kMostLabelBytes) + " bytes of names and values together, not " + std::to_string(bytes));
}

void read_cluster_and_node(MapReader& root, Config& c, FileErrors& report) {
  section(root, "cluster", report, [&](MapReader& map) {
    if (map.text("name", c.cluster.name) && !host::is_node_name(c.cluster.name))
      report.add("out-of-range", map.path("name"), "must be lower-case letters, digits and inner dashes, not " + in_quotes(c.cluster.name));
    map.boolean("found", c.cluster.found);
    map.number("expect", c.cluster.expect, 1, kMostNodes);
  });
  section(root, "node", report, [&](MapReader& map) {
    map.parsed("name", c.node.name, parse_node_name);
    map.text_map("labels", c.node.labels);
    check_labels(map, c.node.labels, report);
    map.parsed("council", c.node.council_never, parse_council);
  });
}

void read_network(MapReader& root, Config& c, FileErrors& report) {
  section(root, "network", report, [&](MapReader& map) {
    c.network.listen_given = map.parsed("listen", c.network.listen, parse_listen);
    map.text("advertise", c.network.advertise);
    map.text("taskAddress", c.network.task_address);
    map.parsed("taskPorts", c.network.task_ports, parse_ports);
    map.texts("join", c.network.join);
    for (const std::string& seed : c.network.join)
      if (const auto parsed = host::parse_seed(seed); !parsed)
        report.add("out-of-range", map.path("join"), parsed.error().message, parsed.error().next);
    c.network.key_file_given = map.parsed("keyFile", c.network.key_file, parse_absolute_or_empty);
  });
}

void read_paths_and_resources(MapReader& root, Config& c, FileErrors& report) {
  section(root, "paths", report, [&](MapReader& map) {
    c.paths.data_given = map.parsed("data", c.paths.data, parse_absolute);
    c.paths.run_given = map.parsed("run", c.paths.run, parse_absolute);
    map.parsed("work", c.paths.work, parse_absolute_or_empty);
  });
  section(root, "resources", report, [&](MapReader& map) {
    std::string gpus = "auto";
    if (map.text("gpus", gpus) && gpus != "auto") optional_of(map, "gpus", c.resources.gpus, parse_gpus);
    map.parsed("topology", c.resources.topology, parse_absolute_or_empty);
    map.texts("excludeGpus", c.resources.exclude_gpus);
    for (const std::string& gpu : c.resources.exclude_gpus)
      if (!host::parse_pci_address(gpu) && !whole<std::uint32_t>(gpu))
        report.add("out-of-range", map.path("excludeGpus"),
                   "must be PCI addresses such as 0000:10:00.0 or indexes such as 0, not " + in_quotes(gpu));
    section(map, "reserve", report, [&](MapReader& reserve) {
      optional_of(reserve, "cpus", c.resources.reserve_cpu_millis, job::parse_cpus);
      optional_of(reserve, "memory", c.resources.reserve_memory, job::parse_memory);
    });
  });
}

void read_tasks(MapReader& root, Config& c, FileErrors& report) {
  c.tasks.ulimits = {{"nofile", 1048576}, {"memlock", RLIM_INFINITY}, {"core", 0}};
  section(root, "tasks", report, [&](MapReader& map) {
    map.parsed("launch", c.tasks.launch, parse_launch);
    map.parsed("cgroup", c.tasks.cgroup, parse_absolute_or_empty);
    map.boolean("cpuBinding", c.tasks.cpu_binding);
    map.boolean("allowRoot", c.tasks.allow_root);
    map.boolean("standbys", c.tasks.standbys);
    map.texts("passEnv", c.tasks.pass_env);
    map.texts("devices", c.tasks.devices);
    for (const std::string& device : c.tasks.devices)
      if (!names_devices(device))
        report.add("out-of-range", map.path("devices"),
                   "must be paths such as /dev/sg0, or char-NAME and block-NAME as in /proc/devices, not " + in_quotes(device));
    if (c.tasks.devices.size() > kMostDevices)
      report.add("out-of-range", map.path("devices"), "must be at most " + std::to_string(kMostDevices));
    section(map, "ulimits", report, [&](MapReader& limits) {
      for (auto& [name, value] : c.tasks.ulimits) limits.parsed(name.c_str(), value, parse_ulimit);
    });
    section(map, "logs", report, [&](MapReader& logs) {
      if (logs.parsed("fileSize", c.tasks.log_file_bytes, job::parse_memory) && c.tasks.log_file_bytes < kSmallestLogFile)
        report.add("out-of-range", logs.path("fileSize"), "must be at least 64Ki");
      logs.number("files", c.tasks.log_files, 2, kMostLogFiles);
      logs.duration("keepFor", c.tasks.log_keep_for);
    });
    map.parsed("imageEngine", c.tasks.image_engine, parse_image_engine);
    map.parsed("imageFallback", c.manifests.image_fallback, parse_image_fallback);
    map.parsed("prolog", c.tasks.prolog, parse_absolute_or_empty);
    map.parsed("epilog", c.tasks.epilog, parse_absolute_or_empty);
  });
}

void read_timing(MapReader& root, Config& c, FileErrors& report) {
  section(root, "healthCheck", report, [&](MapReader& map) {
    map.texts("command", c.health_check.command);
    at_least(map, "every", kShortestTiming, c.health_check.every, report);
    at_least(map, "timeout", kShortestTiming, c.health_check.timeout, report);
  });
  section(root, "timing", report, [&](MapReader& map) {
    at_least(map, "lease", kShortestLease, c.timing.lease, report);
    at_least(map, "downGrace", kShortestTiming, c.timing.down_grace, report);
    at_least(map, "agentGrace", kShortestTiming, c.timing.agent_grace, report);
    at_least(map, "stopAfter", kShortestTiming, c.timing.stop_after, report);
    at_least(map, "restoreWait", kShortestTiming, c.timing.restore_wait, report);
  });
}

void read_access_keys(MapReader& access, Config& c, FileErrors& report) {
  std::map<std::string, std::string> keys;
  access.text_map("keys", keys);
  const std::string path = access.path("keys");
  if (keys.size() > kMostClientKeys)
    return report.add("limit", path, "must be at most " + std::to_string(kMostClientKeys) + " keys, not " + std::to_string(keys.size()));
  for (const auto& [text, user] : keys) {
    const auto key = wire::parse_key(text);
    if (!key)
      report.add("out-of-range", path,
                 "must be public keys of 64 hexadecimal digits, as dtrainctl keygen --client prints them, not " +
                     in_quotes(text.substr(0, kShownOfKey)));
    else if (user.empty()) report.add("out-of-range", job::join_path(path, text), "must be the name of a user of this host");
    else if (!c.client_keys.emplace(wire::key_text(*key), user).second)
      report.add("out-of-range", job::join_path(path, text), "must be there once, not also in other case");
  }
}

// What manifests of other systems name, and only the hosts know.
void read_manifest_settings(MapReader& root, Config& c, FileErrors& report) {
  section(root, "volumes", report, [&](MapReader& map) {
    root.text_map("volumes", c.manifests.volumes);
    for (auto& [name, directory] : c.manifests.volumes) map.parsed(name.c_str(), directory, parse_absolute);
  });
  section(root, "priorityClasses", report, [&](MapReader& map) {
    std::map<std::string, std::string> names;
    root.text_map("priorityClasses", names);
    for (const auto& entry : names)
      map.number(entry.first.c_str(), c.manifests.priority_classes[entry.first], std::numeric_limits<std::int32_t>::min(),
                 std::numeric_limits<std::int32_t>::max());
  });
}

void read_rest(MapReader& root, Config& c, FileErrors& report) {
  section(root, "access", report, [&](MapReader& map) {
    std::map<std::string, std::string> users;
    map.text_map("users", users);
    for (const auto& [user, word] : users) {
      if (const auto role = parse_role(word)) c.access.users[user] = *role;
      else report.add("out-of-range", job::join_path(map.path("users"), user), role.error().message);
    }
    map.parsed("default", c.access.fallback, parse_role);
    read_access_keys(map, c, report);
  });
  section(root, "storage", report, [&](MapReader& map) {
    map.parsed("checkpointRate", c.storage.checkpoint_rate, parse_rate);
    map.parsed("packageCache", c.storage.package_cache, job::parse_memory);
    map.parsed("minFree", c.storage.min_free, parse_free_space);
  });
  read_manifest_settings(root, c, report);
  root.parsed("http", c.http, parse_http);
  section(root, "log", report, [&](MapReader& map) { map.parsed("level", c.log_level, parse_level); });
}

// ---------------------------------------------------------------- the command line's lists and maps

YamlNode option_text(std::string_view text) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.from_option = true;
  node.text = text;
  return node;
}

YamlNode* at_path(YamlNode& root, std::string_view path) {
  YamlNode* node = &root;
  while (!path.empty()) {
    const std::string_view key = path.substr(0, path.find('.'));
    path.remove_prefix(std::min(path.size(), key.size() + 1));
    const auto found = std::find_if(node->entries.begin(), node->entries.end(), [&](const auto& e) { return e.key == key; });
    if (found == node->entries.end()) return nullptr;
    node = &found->value;
  }
  return node;
}

// In a flag, "a,b" is a list and "k=v,..." a map; an empty value is an empty one.
void expand_lists(YamlNode& root) {
  const auto pieces_of = [](const YamlNode& node) {
    std::vector<std::string> pieces;
    for (std::size_t begin = 0; begin < node.text.size();) {
      const std::size_t end = std::min(node.text.find(',', begin), node.text.size());
      pieces.push_back(node.text.substr(begin, end - begin));
      begin = end + 1;
    }
    return pieces;
  };
  for (const char* path : {"network.join", "tasks.passEnv", "tasks.devices", "resources.excludeGpus", "healthCheck.command"}) {
    YamlNode* node = at_path(root, path);
    if (!node || !node->from_option || node->kind != YamlNode::Kind::scalar) continue;
    node->kind = YamlNode::Kind::sequence;
    for (const auto& piece : pieces_of(*node)) node->items.push_back(option_text(piece));
  }
  for (const char* path : {"node.labels", "access.users", "access.keys", "volumes", "priorityClasses"}) {
    YamlNode* node = at_path(root, path);
    if (!node || !node->from_option || node->kind != YamlNode::Kind::scalar) continue;
    const auto pieces = pieces_of(*node);
    if (std::any_of(pieces.begin(), pieces.end(), [](const auto& p) { return p.find('=') == std::string::npos; })) continue;
    node->kind = YamlNode::Kind::mapping;
    for (const auto& piece : pieces)
      node->entries.push_back({piece.substr(0, piece.find('=')), 0, option_text(piece.substr(piece.find('=') + 1))});
  }
}

void place_all(const YamlNode& node, const std::string& path, FileErrors& report) {
  for (const auto& entry : node.entries) {
    const std::string at = job::join_path(path, entry.key);
    report.place(at, entry.value.from_option ? 0 : entry.line);
    place_all(entry.value, at, report);
  }
}

// Keys that are read and checked, so that a file for a whole cluster is accepted, but have no effect in this version.
constexpr const char* kWithoutEffect[] = {"timing.stopAfter", "http", "node.council"};

// True if the file has no content but comments.
bool only_comments(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto first = line.find_first_not_of(" \t\r");
    if (first != std::string_view::npos && line[first] != '#') return false;
  }
  return true;
}

}  // namespace

LoadedConfig read_config(const std::string& text, const std::string& file_name, const Sets& sets) {
  LoadedConfig loaded;
  FileErrors report(file_name);
  YamlNode root;
  if (!only_comments(text)) {
    auto tree = job::parse_yaml(text);
    if (!tree) {
      report.add_at(tree.error().line, tree.error().code, "", tree.error().message, tree.error().next);
      loaded.errors = report.take();
      return loaded;
    }
    root = std::move(*tree);
  }
  if (root.kind == YamlNode::Kind::null) root.kind = YamlNode::Kind::mapping;
  job::apply_sets(root, sets, report);
  expand_lists(root);
  place_all(root, "", report);
  MapReader map(root, "", report);
  read_cluster_and_node(map, loaded.config, report);
  read_network(map, loaded.config, report);
  read_paths_and_resources(map, loaded.config, report);
  read_tasks(map, loaded.config, report);
  read_timing(map, loaded.config, report);
  read_rest(map, loaded.config, report);
  map.done();
  for (const char* path : kWithoutEffect)
    if (at_path(root, path)) loaded.config.without_effect.push_back(path);
  loaded.errors = report.take();
  for (job::FileError& error : loaded.errors)
    if (error.file == "--set") error.file = "command line";
  return loaded;
}

Result<LoadedConfig> load_config(const std::string& file, const Sets& sets) {
  const std::string path = file.empty() ? kDefaultConfigFile : file;
  const auto text = store::read_file(path, limits::kJobFileBytes);
  if (text) return read_config(*text, path, sets);
  if (file.empty() && text.error().code == ErrorCode::not_found) return read_config("", path, sets);
  return fail(text.error());
}

}  // namespace dtrain::daemon
