#include "agent/dtrainctl/log_printer.h"

#include <algorithm>
#include <array>

#include "common/base/time.h"

namespace dtrain::ctl {

wire::LogsRequest LogResume::request() {
  if (seen_.empty()) return request_;
  resumed_ = true;
  wire::LogsRequest again = request_;
  if (latest_only()) again.all_attempts = true;   // the latest by now may not be the latest of then
  if (by_time()) {
    again.tail = -1;
    again.since_ms = seen_.begin()->second.time_ms;
    for (const auto& [key, seen] : seen_) again.since_ms = std::min(again.since_ms, seen.time_ms);
  }
  for (auto& [key, seen] : seen_) {
    seen.again = 0;
    seen.reached = false;
  }
  return again;
}

std::string_view LogResume::fresh(const wire::LogChunk& chunk) {
  std::string_view bytes = chunk.bytes;
  if (bytes.empty()) return {};
  const std::pair attempt(chunk.generation, chunk.attempt);
  const auto [first, is_new] = first_.emplace(chunk.task, attempt);
  if (resumed_ && !is_new && latest_only() && attempt < first->second) return {};
  Seen& seen = seen_[Key{chunk.task, chunk.generation, chunk.attempt, chunk.is_stderr}];
  if (resumed_ && !seen.reached) {
    const bool known_time = by_time() && chunk.time_ms < seen.time_ms;
    if (known_time) return {};
    const std::uint64_t printed = !by_time() ? seen.bytes : chunk.time_ms == seen.time_ms ? seen.bytes_at_time : 0;
    const std::uint64_t left = printed > seen.again ? printed - seen.again : 0;
    const std::size_t known = static_cast<std::size_t>(std::min<std::uint64_t>(left, bytes.size()));
    seen.again += known;
    bytes.remove_prefix(known);
    if (bytes.empty()) return {};
    seen.reached = true;
  }
  if (chunk.time_ms != seen.time_ms) seen.bytes_at_time = 0;
  seen.time_ms = chunk.time_ms;
  seen.bytes += bytes.size();
  seen.bytes_at_time += bytes.size();
  return bytes;
}

void LogPrinter::line(const std::string& task, std::int64_t time_ms, std::string_view text, std::string& out) const {
  if (style_.last_part_only) {
    while (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    if (const std::size_t at = text.rfind('\r'); at != std::string_view::npos) text.remove_prefix(at + 1);
  }
  if (style_.prefix) {
    static constexpr std::array<const char*, 6> colors{"36", "33", "32", "35", "34", "31"};
    std::size_t sum = 0;
    for (const char c : task) sum = sum * 31 + static_cast<unsigned char>(c);
    if (style_.color) out += "\033[" + std::string(colors[sum % colors.size()]) + "m" + task + " |\033[0m ";
    else out += task + " | ";
  }
  if (style_.timestamps) out += to_rfc3339(WallTime(std::chrono::milliseconds(time_ms))) + " ";
  out.append(text);
  out += '\n';
}

void LogPrinter::end_line(const std::string& task, Partial& partial, std::string& out) const {
  if (!partial.text.empty()) line(task, partial.time_ms, partial.text, out);
  partial.text.clear();
}

void LogPrinter::add(const wire::LogChunk& chunk, std::string_view bytes) {
  if (!style_.prefix && !style_.timestamps) {
    sink_(bytes);
    return;
  }
  std::string out;
  Partial& partial = partial_[{chunk.task, chunk.is_stderr}];
  if (partial.generation != chunk.generation || partial.attempt != chunk.attempt) end_line(chunk.task, partial, out);
  partial.generation = chunk.generation;
  partial.attempt = chunk.attempt;
  while (!bytes.empty()) {
    if (partial.text.empty()) partial.time_ms = chunk.time_ms;
    const std::size_t end = bytes.find('\n');
    const std::size_t room = kLogLineBytes - partial.text.size();
    if (end == std::string_view::npos && bytes.size() < room) {
      partial.text.append(bytes);
      break;
    }
    const std::size_t take = std::min(end, room);
    partial.text.append(bytes.substr(0, take));
    bytes.remove_prefix(take == end ? take + 1 : take);
    line(chunk.task, partial.time_ms, partial.text, out);
    partial.text.clear();
  }
  if (style_.prefix) end_line(chunk.task, partial, out);
  if (!out.empty()) sink_(out);
}

void LogPrinter::finish() {
  std::string out;
  for (auto& [key, partial] : partial_) end_line(key.first, partial, out);
  partial_.clear();
  if (!out.empty()) sink_(out);
}

}  // namespace dtrain::ctl
