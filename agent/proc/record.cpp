#include "agent/proc/record.h"

#include <algorithm>

#include "agent/base/small_file.h"

namespace dtrain::proc {

namespace {

// Only whole lines, if the beginning was cut off.
std::string whole_lines(const std::string& tail) {
  if (tail.size() < shim::kTailBytes) return tail;
  const std::size_t newline = tail.find('\n');
  return newline == std::string::npos || newline + 1 == tail.size() ? tail : tail.substr(newline + 1);
}

// Makes the text harmless for terminals.
std::string in_words(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\r') out += "\\r";
    else out += static_cast<unsigned char>(c) < ' ' || c == 0x7f ? '?' : c;
  }
  return out;
}

std::string missing_interpreter(const ShimRecord& record, const std::string& program) {
  const std::string text =
      "could not execute " + program + ": its interpreter " + in_words(record.tail) + ": " + cause_of(record.fixed.error);
  return record.tail.ends_with('\r') ? text + "; the file has the line ends of Windows: convert it with dos2unix" : text;
}

std::string failed_step(const ShimRecord& record, const std::string& program, const std::string& work_dir) {
  const std::string cause = ": " + cause_of(record.fixed.error);
  switch (static_cast<shim::Step>(record.fixed.step)) {
    case shim::Step::none: return "";
    case shim::Step::execute: return "could not execute " + program + cause;
    case shim::Step::interpret: return missing_interpreter(record, program);
    case shim::Step::enter_directory: return "could not enter " + work_dir + cause;
    case shim::Step::become_user: return "could not become the task's user" + cause;
    case shim::Step::set_limit: return "could not set a resource limit" + cause;
  }
  return "could not start " + program + cause;
}

}  // namespace

std::optional<ShimRecord> parse_record(std::string_view bytes) {
  ShimRecord record;
  shim::Record& f = record.fixed;
  if (!shim::read_record(bytes.data(), bytes.size(), f)) return std::nullopt;
  if (f.status_bytes > shim::kStatusBytes || f.tail_bytes > shim::kTailBytes ||
      std::size_t{f.fixed_bytes} + f.status_bytes + f.tail_bytes > bytes.size())
    return std::nullopt;
  f.boot_id[sizeof(f.boot_id) - 1] = '\0';
  record.status = bytes.substr(f.fixed_bytes, f.status_bytes);
  record.tail = bytes.substr(std::size_t{f.fixed_bytes} + f.status_bytes, f.tail_bytes);
  bytes.remove_prefix(std::size_t{f.fixed_bytes} + f.status_bytes + f.tail_bytes);
  if (f.pid_count > shim::kMostRanks || f.pid_count * sizeof(std::int32_t) > bytes.size()) return std::nullopt;
  record.pids.resize(f.pid_count);
  std::ranges::copy_n(bytes.begin(), static_cast<std::ptrdiff_t>(f.pid_count * sizeof(std::int32_t)),
                      reinterpret_cast<char*>(record.pids.data()));
  return record;
}

std::optional<ShimRecord> read_record(const std::string& directory, const char* name) {
  const auto bytes = read_small_file(directory + "/" + name, shim::kPacketBytes);
  return bytes ? parse_record(*bytes) : std::nullopt;
}

task::Exit to_exit(const ShimRecord& record, const std::string& program, const std::string& work_dir) {
  task::Exit exit;
  exit.code = record.fixed.code;
  exit.signal = record.fixed.signal;
  exit.out_of_memory = record.has(shim::kOutOfMemory);
  exit.cause = failed_step(record, program, work_dir);
  if (exit.cause.empty() && record.has(shim::kFreezeFailed)) exit.cause = "could not be frozen in time";
  exit.with_host = record.has(shim::kHostStops);
  exit.rank = record.fixed.rank;
  if (exit.code != 0 || exit.signal != 0) exit.ended = wall_time(record.fixed.ended_ns);
  if (static_cast<shim::Step>(record.fixed.step) != shim::Step::interpret) exit.stderr_tail = whole_lines(record.tail);
  return exit;
}

WallTime wall_time(std::int64_t realtime_ns) {
  return WallTime(std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(realtime_ns)));
}

}  // namespace dtrain::proc
