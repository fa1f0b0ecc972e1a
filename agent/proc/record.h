// A shim's record of its attempt (dtrain-shim/protocol.h), in the agent's types.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/dtrain-shim/protocol.h"
#include "common/base/time.h"
#include "common/task/shim_spec.h"

namespace dtrain::proc {

struct ShimRecord {
  shim::Record fixed;
  std::string status;
  std::string tail;
  std::vector<std::int32_t> pids;  // of the ranks of an attempt that runs; 0: it has ended

  shim::Phase phase() const { return static_cast<shim::Phase>(fixed.phase); }
  bool has(std::uint16_t flag) const { return (fixed.flags & flag) != 0; }
  // True if the main process, or another process of the attempt, was alive when the record was written.
  bool active() const { return phase() == shim::Phase::running || phase() == shim::Phase::ending; }
};

// nullopt: not a record (foreign or truncated bytes).
std::optional<ShimRecord> parse_record(std::string_view bytes);
std::optional<ShimRecord> read_record(const std::string& directory, const char* name);

// The exit of an attempt whose record says `ended`. `program` is argv[0], for the message about a program that did not start.
task::Exit to_exit(const ShimRecord& record, const std::string& program, const std::string& work_dir);

WallTime wall_time(std::int64_t realtime_ns);

}  // namespace dtrain::proc
