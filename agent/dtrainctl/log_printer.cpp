#include "agent/dtrainctl/log_printer.h"

#include <algorithm>
#include <array>

#include "common/base/time.h"

namespace dtrain::ctl {

wire::LogsRequest LogResume::request() {
  if (seen_.empty()) return request_;
  resumed_ = true;
  wire::LogsRequest again = request_;
  if (latest_only()) again.all_attempts = true;  // the latest now may not be the latest of then
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

std::string source_of(const wire::LogChunk& chunk) { return text_of_rank(chunk.task, chunk.rank); }

std::string_view LogResume::fresh(const wire::LogChunk& chunk) {
  std::string_view bytes = chunk.bytes;
  if (bytes.empty()) return {};
  const std::pair attempt(chunk.generation, chunk.attempt);
  const std::string source = source_of(chunk);
  const auto [first, is_new] = first_.emplace(source, attempt);
  if (resumed_ && !is_new && latest_only() && attempt < first->second) return {};
  Seen& seen = seen_[Key{source, chunk.generation, chunk.attempt, chunk.is_stderr}];
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

namespace {

// Where the newest state of a line begins that carriage returns rewrite. Carriage returns at its end belong to it.
std::size_t newest_state(std::string_view text) {
  const std::size_t last = text.find_last_not_of('\r');
  if (last == std::string_view::npos) return text.size();
  return text.rfind('\r', last) + 1;  // without one: 0
}

// Prints each state with the head of its line, so that a terminal writes it over the previous one.
void append_states(std::string_view text, const std::string& head, std::string& out) {
  for (const char c : text) {
    out += c;
    if (c == '\r') out += head;
  }
}

// The part of an open line that can be shown: what follows its last carriage returns may be its end.
std::size_t showable(std::string_view text) { return text.find_last_not_of('\r') + 1; }

}  // namespace

std::string LogPrinter::head(const Key& key, const Partial& partial) const {
  std::string out;
  if (partial.prefix) {
    static constexpr std::array<const char*, 6> colors{"36", "33", "32", "35", "34", "31"};
    std::size_t sum = 0;
    for (const char c : key.first) sum = sum * 31 + static_cast<unsigned char>(c);
    if (style_.color) out += "\033[" + std::string(colors[sum % colors.size()]) + "m" + key.first + " |\033[0m ";
    else out += key.first + " | ";
  }
  if (style_.timestamps) out += to_rfc3339(WallTime(std::chrono::milliseconds(partial.time_ms))) + " ";
  return out;
}

void LogPrinter::reset_color(Partial& partial, std::string& out) const {
  if (partial.escapes.take_colored()) out += kResetColor;
}

// The open line ends where it is, and its next state goes on another line.
void LogPrinter::leave_bar(std::string& out) {
  if (!bar_) return;
  Partial& partial = partial_[*bar_];
  reset_color(partial, out);
  out += '\n';
  partial.text.erase(0, partial.shown);
  partial.shown = 0;
  partial.left = true;
  bar_.reset();
}

void LogPrinter::end_line(const Key& key, Partial& partial, std::string& out) {
  std::string_view text = partial.text;
  if (style_.bars_apart) {
    text = text.substr(newest_state(text));
    text = text.substr(0, showable(text));
  }
  const std::size_t end = showable(text);
  if (!std::exchange(partial.left, false) || end > 0) {
    const std::string start = head(key, partial);
    if (bar_ != key) {
      leave_bar(out);
      out += start;
    }
    append_states(text.substr(partial.shown, end - partial.shown), start, out);
    out.append(text.substr(end));
    reset_color(partial, out);
    out += '\n';
    if (bar_ == key) bar_.reset();
  }
  partial.text.clear();
  partial.shown = 0;
}

void LogPrinter::show_bar(const Key& key, Partial& partial, std::int64_t time_ms, std::string& out) {
  if (style_.bars_apart) {
    partial.text.erase(0, newest_state(partial.text));
    partial.text.insert(0, 1, '\r');  // by which it is known
    return;
  }
  const std::string start = head(key, partial);
  if (bar_ != key) {
    if (bar_ && time_ms - bar_since_ < kBarPauseMs) {
      partial.text.erase(0, newest_state(partial.text));
      partial.text.insert(0, 1, '\r');
      return;
    }
    leave_bar(out);
    out += start;
    bar_ = key;
    bar_since_ = time_ms;
  }
  const std::size_t end = showable(partial.text);
  if (end > partial.shown) append_states(std::string_view(partial.text).substr(partial.shown, end - partial.shown), start, out);
  partial.shown = std::max(partial.shown, end);
  // Text that was overwritten is dropped.
  const std::size_t newest = std::min(newest_state(partial.text), partial.shown);
  partial.text.erase(0, newest);
  partial.shown -= newest;
}

void LogPrinter::add(const wire::LogChunk& chunk, std::string_view bytes) {
  std::string out;
  const Key key{source_of(chunk), chunk.is_stderr};
  Partial& partial = partial_[key];
  partial.prefix = style_.prefix || (style_.ranks && chunk.rank > 0);
  if (partial.generation != chunk.generation || partial.attempt != chunk.attempt) {
    if (!partial.text.empty() || bar_ == key) end_line(key, partial, out);
    partial.escapes = EscapeFilter(style_.color);
  }
  partial.generation = chunk.generation;
  partial.attempt = chunk.attempt;
  const bool ends = !chunk.open && (!bytes.empty() || chunk.bytes.empty());
  std::string fit;
  if (style_.terminal) bytes = fit = partial.escapes.pass(bytes);
  if (!partial.prefix && !style_.timestamps) {
    if (!bytes.empty()) sink_(bytes);
    return;
  }
  while (!bytes.empty()) {
    if (partial.text.empty()) partial.time_ms = chunk.time_ms;
    const std::size_t end = bytes.find('\n');
    const std::size_t room = kLogLineBytes - std::min(kLogLineBytes, partial.text.size());
    if (end == std::string_view::npos && bytes.size() < room) {
      partial.text.append(bytes);
      break;
    }
    const std::size_t take = std::min(end, room);
    partial.text.append(bytes.substr(0, take));
    bytes.remove_prefix(take == end ? take + 1 : take);
    end_line(key, partial, out);
  }
  if (!partial.text.empty()) {
    if (partial.prefix && ends) end_line(key, partial, out);
    else if (partial.text.find('\r') != std::string::npos || bar_ == key) show_bar(key, partial, chunk.time_ms, out);
  } else if (ends && bar_ == key) {
    end_line(key, partial, out);
  }
  if (!out.empty()) sink_(out);
}

std::vector<std::string> LogPrinter::bars() const {
  std::vector<std::string> lines;
  for (const auto& [key, partial] : partial_) {
    if (partial.text.find('\r') == std::string::npos) continue;
    EscapeFilter plain;
    std::string_view text = partial.text;
    text = text.substr(newest_state(text));
    lines.push_back(key.first + " | " + plain.pass(text.substr(0, showable(text))));
  }
  return lines;
}

void LogPrinter::finish() {
  std::string out;
  for (auto& [key, partial] : partial_) {
    if (!partial.text.empty()) end_line(key, partial, out);
    reset_color(partial, out);
  }
  leave_bar(out);
  partial_.clear();
  if (!out.empty()) sink_(out);
}

}  // namespace dtrain::ctl
