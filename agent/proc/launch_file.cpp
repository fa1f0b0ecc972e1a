#include "agent/proc/launch_file.h"

#include <cerrno>

#include "agent/base/small_file.h"
#include "agent/dtrain-shim/protocol.h"

namespace dtrain::proc {

namespace {

std::uint32_t append_text(std::string& out, const std::string& text) {
  const auto offset = static_cast<std::uint32_t>(out.size());
  out.append(text).push_back('\0');
  return offset;
}

// One bit each, in whole words of the kernel.
Result<std::string> cpu_bits(const std::vector<std::uint32_t>& cpus) {
  std::string bits;
  for (const std::uint32_t cpu : cpus) {
    if (cpu / 8 >= shim::kCpuBytes)
      return fail(ErrorCode::limit, "could not prepare the launch: CPU " + std::to_string(cpu) + " is beyond the last of " +
                                        std::to_string(8 * shim::kCpuBytes));
    if (cpu / 8 >= bits.size()) bits.resize((cpu / 64 + 1) * 8);
    bits[cpu / 8] = static_cast<char>(bits[cpu / 8] | 1 << cpu % 8);
  }
  return bits;
}

bool has_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

Status check_variable(const std::string& name, const std::string& value) {
  if (!name.empty() && !has_nul(name) && !has_nul(value) && name.find('=') == std::string::npos) return {};
  return fail(ErrorCode::invalid, "could not prepare the launch: '" + name + "' cannot be an environment variable");
}

bool read_text(std::string_view bytes, std::size_t& at, std::string& out) {
  const std::size_t end = at < bytes.size() ? bytes.find('\0', at) : std::string_view::npos;
  if (end == std::string_view::npos) return false;
  out = bytes.substr(at, end - at);
  at = end + 1;
  return true;
}

// By value: the caller's offset stays.
bool read_text_at(std::string_view bytes, std::size_t at, std::string& out) { return read_text(bytes, at, out); }

}  // namespace

Result<std::string> encode_launch(const LaunchFile& launch) {
  shim::LaunchHeader h;
  h.header_bytes = sizeof(h);
  h.flags = (launch.switch_user ? shim::kSwitchUser : 0) | (launch.is_unit ? shim::kUnit : 0) |
            (launch.signal_main ? shim::kSignalMain : 0) | (launch.is_standby ? shim::kStandby : 0) |
            (launch.first_leads ? shim::kFirstLeads : 0);
  h.target = launch.target;
  h.stop_grace_ns = launch.stop_grace.count();
  h.stop_signal = launch.stop_signal;
  h.agent_uid = launch.agent_uid;
  h.uid = launch.uid;
  h.gid = launch.gid;
  h.last_attempt = launch.last_attempt;
  h.first_log = launch.first_log;
  h.log_files = launch.log_files;
  h.log_file_bytes = launch.log_file_bytes;
  h.lease_ns = launch.lease.count();
  h.epoch = launch.epoch;
  h.first_nonce = launch.first_nonce;
  if (launch.argv.empty() || launch.rlimits.size() > shim::kRlimits || launch.groups.size() > shim::kGroups)
    return fail(ErrorCode::invalid, "could not prepare the launch: no command, or too many limits or groups");
  for (const auto& [resource, value] : launch.rlimits) h.rlimits[h.rlimit_count++] = {static_cast<std::uint32_t>(resource), 0, value};

  std::string out(sizeof(h), '\0');
  const auto cpus = cpu_bits(launch.cpus);
  if (!cpus) return fail(cpus.error());
  h.cpus_offset = static_cast<std::uint32_t>(out.size());
  h.cpu_bytes = static_cast<std::uint32_t>(cpus->size());
  h.numa_node = launch.numa_node;
  out.append(*cpus);
  h.groups_offset = static_cast<std::uint32_t>(out.size());
  h.group_count = static_cast<std::uint32_t>(launch.groups.size());
  for (const std::uint32_t group : launch.groups) out.append(reinterpret_cast<const char*>(&group), sizeof(group));
  h.argv_offset = static_cast<std::uint32_t>(out.size());
  h.argv_count = static_cast<std::uint32_t>(launch.argv.size());
  for (const std::string& argument : launch.argv) {
    if (has_nul(argument)) return fail(ErrorCode::invalid, "could not prepare the launch: an argument holds a NUL byte");
    append_text(out, argument);
  }
  h.env_offset = static_cast<std::uint32_t>(out.size());
  h.env_count = static_cast<std::uint32_t>(launch.env.size());
  for (const auto& [name, value] : launch.env) {
    if (const Status valid = check_variable(name, value); !valid) return fail(valid.error());
    append_text(out, name + "=" + value);
  }
  h.rank_env_offset = static_cast<std::uint32_t>(out.size());
  h.rank_count = static_cast<std::uint32_t>(launch.ranks.size());
  h.rank_env_count = launch.ranks.empty() ? 0 : static_cast<std::uint32_t>(launch.ranks.front().size());
  if (h.rank_count > shim::kMostRanks || h.rank_env_count > shim::kRankVariables)
    return fail(ErrorCode::limit, "could not prepare the launch: too many ranks or variables of ranks");
  for (const auto& variables : launch.ranks) {
    if (variables.size() != h.rank_env_count)
      return fail(ErrorCode::invalid, "could not prepare the launch: its ranks have different variables");
    for (const auto& [name, value] : variables) {
      if (const Status valid = check_variable(name, value); !valid) return fail(valid.error());
      append_text(out, name + "=" + value);
    }
  }
  h.work_dir_offset = append_text(out, launch.work_dir);
  h.notify_offset = append_text(out, launch.notify);
  h.cgroup_offset = append_text(out, launch.cgroup);
  h.memory_offset = append_text(out, launch.memory_cgroup);
  h.address_offset = append_text(out, launch.address);
  h.port = launch.port;
  if (!launch.error_file.empty()) h.error_offset = append_text(out, launch.error_file);
  if (out.size() > shim::kLaunchBytes)
    return fail(ErrorCode::limit,
                "could not prepare the launch: arguments and environment take more than " + std::to_string(shim::kLaunchBytes) + " bytes");
  h.total_bytes = out.size();
  out.replace(0, sizeof(h), reinterpret_cast<const char*>(&h), sizeof(h));
  return out;
}

Result<LaunchFile> decode_launch(std::string_view bytes) {
  const auto damaged = [] { return fail(ErrorCode::damaged, "could not read a launch file: its bytes make no sense"); };
  shim::LaunchHeader h;
  if (!shim::read_launch_header(bytes.data(), bytes.size(), h)) return damaged();
  LaunchFile launch;
  launch.switch_user = (h.flags & shim::kSwitchUser) != 0;
  launch.is_unit = (h.flags & shim::kUnit) != 0;
  launch.signal_main = (h.flags & shim::kSignalMain) != 0;
  launch.is_standby = (h.flags & shim::kStandby) != 0;
  launch.target = h.target;
  launch.first_leads = (h.flags & shim::kFirstLeads) != 0;
  launch.stop_grace = Duration(h.stop_grace_ns);
  launch.stop_signal = h.stop_signal;
  launch.agent_uid = h.agent_uid;
  launch.uid = h.uid;
  launch.gid = h.gid;
  launch.last_attempt = h.last_attempt;
  launch.first_log = h.first_log;
  launch.log_files = h.log_files;
  launch.log_file_bytes = h.log_file_bytes;
  launch.lease = Duration(h.lease_ns);
  launch.epoch = h.epoch;
  launch.first_nonce = h.first_nonce;
  for (std::uint32_t i = 0; i < h.rlimit_count; ++i)
    launch.rlimits.emplace_back(static_cast<int>(h.rlimits[i].resource), h.rlimits[i].value);
  launch.groups.resize(h.group_count);
  if (h.group_count > 0) memcpy(launch.groups.data(), bytes.data() + h.groups_offset, h.group_count * sizeof(std::uint32_t));
  for (std::uint32_t bit = 0; bit < 8 * h.cpu_bytes; ++bit)
    if ((bytes[h.cpus_offset + bit / 8] >> bit % 8 & 1) != 0) launch.cpus.push_back(bit);
  launch.numa_node = h.numa_node;
  std::string text;
  std::size_t at = h.argv_offset;
  for (std::uint32_t i = 0; i < h.argv_count; ++i) {
    if (!read_text(bytes, at, text)) return damaged();
    launch.argv.push_back(text);
  }
  at = h.env_offset;
  for (std::uint32_t i = 0; i < h.env_count; ++i) {
    const std::size_t equals = read_text(bytes, at, text) ? text.find('=') : std::string::npos;
    if (equals == std::string::npos) return damaged();
    launch.env[text.substr(0, equals)] = text.substr(equals + 1);
  }
  at = h.rank_env_offset;
  for (std::uint32_t rank = 0; rank < h.rank_count; ++rank) {
    auto& variables = launch.ranks.emplace_back();
    for (std::uint32_t i = 0; i < h.rank_env_count; ++i) {
      const std::size_t equals = read_text(bytes, at, text) ? text.find('=') : std::string::npos;
      if (equals == std::string::npos) return damaged();
      variables[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  if (launch.argv.empty() || !read_text_at(bytes, h.work_dir_offset, launch.work_dir) ||
      !read_text_at(bytes, h.notify_offset, launch.notify) || !read_text_at(bytes, h.cgroup_offset, launch.cgroup) ||
      !read_text_at(bytes, h.memory_offset, launch.memory_cgroup) || !read_text_at(bytes, h.address_offset, launch.address) ||
      (h.error_offset != 0 && !read_text_at(bytes, h.error_offset, launch.error_file)))
    return damaged();
  launch.port = static_cast<std::uint16_t>(h.port);
  return launch;
}

Result<LaunchFile> read_launch(const std::string& directory) {
  const std::string path = directory + "/" + shim::kLaunchFile;
  const auto bytes = read_small_file(path, shim::kLaunchBytes);
  if (!bytes) return fail(ErrorCode::io, "could not read " + path + ": " + cause_of(errno));
  return decode_launch(*bytes);
}

}  // namespace dtrain::proc
