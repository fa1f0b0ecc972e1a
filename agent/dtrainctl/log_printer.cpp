#include "agent/dtrainctl/log_printer.h"

#include <array>

#include "common/base/time.h"

namespace dtrain::ctl {

std::string_view LogPosition::fresh(const wire::LogChunk& chunk) {
  const Key key{chunk.task, chunk.generation, chunk.attempt, chunk.is_stderr};
  std::uint64_t& read = read_[key];
  std::uint64_t& seen = seen_[key];
  std::string_view bytes = chunk.bytes;
  const std::uint64_t start = read;
  read += bytes.size();
  if (read <= seen) return {};
  if (start < seen) bytes.remove_prefix(seen - start);
  seen = read;
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
