#include "agent/dtrainctl/words.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "common/base/steering.h"
#include "common/job/manifest.h"
#include "common/job/quantity.h"

namespace dtrain::ctl {
namespace {

// Length of the well-formed UTF-8 sequence at the start of text; 0 when there is none.
std::size_t sequence_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  std::size_t length = 1;
  std::uint32_t value = first;
  if (first >= 0x80) {
    if (first >= 0xc2 && first <= 0xdf) length = 2, value = first & 0x1f;
    else if (first >= 0xe0 && first <= 0xef) length = 3, value = first & 0x0f;
    else if (first >= 0xf0 && first <= 0xf4) length = 4, value = first & 0x07;
    else return 0;
  }
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    value = (value << 6) | (at(i) & 0x3f);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  return overlong || surrogate || value > 0x10ffff ? 0 : length;
}

}  // namespace

std::string age_text(std::int64_t seconds) {
  if (seconds < 0) seconds = 0;
  const auto two = [](std::int64_t big, const char* big_name, std::int64_t small, const char* small_name) {
    return std::to_string(big) + big_name + (small != 0 ? std::to_string(small) + small_name : "");
  };
  if (seconds < 60) return std::to_string(seconds) + "s";
  if (seconds < 3600) return two(seconds / 60, "m", seconds % 60, "s");
  if (seconds < 86'400) return two(seconds / 3600, "h", seconds % 3600 / 60, "m");
  return two(seconds / 86'400, "d", seconds % 86'400 / 3600, "h");
}

std::string bytes_text(std::uint64_t bytes) {
  static constexpr std::array<const char*, 6> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < units.size()) value /= 1024.0, ++unit;
  return value < 10 && unit > 0 ? fmt::format("{:.1f} {}", value, units[unit]) : fmt::format("{:.0f} {}", value, units[unit]);
}

int signal_number(std::string_view name) {
  const auto signal = job::parse_signal(name);
  return signal ? *signal : 0;
}

std::string exit_text(const std::optional<wire::ExitView>& exit) {
  if (!exit) return "";
  std::string text = exit->signal ? *exit->signal : exit->code ? std::to_string(*exit->code) : "unknown";
  if (exit->cause && !exit->cause->empty()) text += " (" + *exit->cause + ")";
  return text;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    const bool control = first < 0x20 || first == 0x7f || steering_bytes(text) > 0;
    if (length == 0 || control) out.push_back('?');
    else out.append(text.substr(0, length));
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

void split_rank(std::string& task, std::uint32_t& rank) {
  const std::size_t dot = task.find('.');
  if (dot == std::string::npos || rank != 0) return;
  std::uint16_t number = 0;
  const char* const end = task.data() + task.size();
  const auto read = std::from_chars(task.data() + dot + 1, end, number);
  if (read.ec != std::errc() || read.ptr != end) return;
  rank = number + 1u;
  task.resize(dot);
}

Result<std::int64_t> parse_since(std::string_view text, std::int64_t now_ms) {
  if (auto span = job::parse_duration(text)) return now_ms - std::chrono::duration_cast<std::chrono::milliseconds>(*span).count();
  const auto wrong = [&] {
    return fail(ErrorCode::invalid, "could not read time '" + std::string(text) + "'",
                "give a time span such as 5m, or 2026-11-20T07:00:00Z");
  };
  const std::string copy(text);
  std::tm parts{};
  const char* rest = ::strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return wrong();
  std::int64_t ms = static_cast<std::int64_t>(::timegm(&parts)) * 1000;
  if (*rest == '.') {
    std::int64_t scale = 100;
    for (++rest; *rest >= '0' && *rest <= '9'; ++rest, scale /= 10) ms += (*rest - '0') * scale;
  }
  if (*rest == 'Z' && rest[1] == '\0') return ms;
  int hours = 0, minutes = 0, used = 0;
  char sign = 0;
  if (std::sscanf(rest, "%c%2d:%2d%n", &sign, &hours, &minutes, &used) != 3 || rest[used] != '\0' || (sign != '+' && sign != '-'))
    return wrong();
  const std::int64_t offset = (hours * 60 + minutes) * 60'000;
  return sign == '+' ? ms - offset : ms + offset;
}

}  // namespace dtrain::ctl
