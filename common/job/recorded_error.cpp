#include "common/job/recorded_error.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/limits.h"

namespace dtrain::job {

namespace {

constexpr std::size_t kErrorDepth = 64;                // of objects and arrays; deeper: it is none of these files
constexpr std::int64_t kLastSecond = 100'000'000'000;  // a later one is no time

// {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": "SECONDS"}}}. Older versions, and programs that follow
// their documentation, write {"message": TEXT, "timestamp": SECONDS}.
class ErrorReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::optional<std::string> message;
  std::string stack;
  std::int64_t seconds = 0;  // 0: it says no time

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t value) override {
    if (is_time() && value <= static_cast<std::uint64_t>(kLastSecond)) seconds = static_cast<std::int64_t>(value);
    return true;
  }
  bool number_float(number_float_t, const string_t& text) override {
    if (is_time()) take_time(text);
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool string(string_t& value) override {
    if (at("message") || at("message.message")) message = std::move(value);
    else if (at("message.extraInfo.py_callstack")) stack = std::move(value);
    else if (is_time()) take_time(value);
    return true;
  }
  bool key(string_t& name) override {
    path_.resize(ends_.back());
    path_ += (path_.empty() ? "" : ".") + name;
    return true;
  }
  bool start_object(std::size_t) override { return begin(); }
  bool start_array(std::size_t) override {
    path_ += "[]";
    return begin();
  }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool begin() {
    ends_.push_back(path_.size());
    return ends_.size() <= kErrorDepth;
  }
  bool end() {
    path_.resize(ends_.back());
    ends_.pop_back();
    return true;
  }
  bool at(std::string_view path) const { return path_ == path; }
  bool is_time() const { return at("timestamp") || at("message.extraInfo.timestamp"); }
  void take_time(std::string_view text) {
    std::int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc{} && value > 0 && value <= kLastSecond)
      seconds = value;
  }

  std::string path_;               // of the value that is being read, its keys joined by dots
  std::vector<std::size_t> ends_;  // of the paths of the objects around it
};

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }  // a character of UTF-8

std::string in_one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  if (text.size() <= limits::kReasonBytes) return text;
  std::size_t size = limits::kReasonBytes;
  while (size > 0 && continues(text[size])) --size;
  text.resize(size);
  return text;
}

std::string last_lines(std::string text) {
  if (text.size() <= limits::kStderrTailBytes) return text;
  text.erase(0, text.size() - limits::kStderrTailBytes);
  const std::size_t line = text.find('\n');
  std::size_t begin = line == text.npos || line + 1 == text.size() ? 0 : line + 1;
  while (begin < text.size() && continues(text[begin])) ++begin;
  return text.substr(begin);
}

// The file has whole seconds. Its own time is finer, and is taken where it agrees with them.
WallTime time_of(std::int64_t seconds, const ErrorTimes& times) {
  WallTime at = times.written;
  if (seconds > 0) {
    const WallTime first{std::chrono::seconds(seconds)};
    at = std::clamp(at, first, first + 999ms);
  }
  return std::max(times.began, std::min(at, times.ended));
}

}  // namespace

std::optional<RecordedError> parse_recorded_error(std::string_view file, const ErrorTimes& times) {
  ErrorReader read;
  if (file.size() > kErrorFileBytes || !nlohmann::json::sax_parse(file, &read) || !read.message) return std::nullopt;
  RecordedError error;
  error.at = time_of(read.seconds, times);
  error.message = in_one_line(std::move(*read.message));
  error.stack = last_lines(std::move(read.stack));
  return error;
}

}  // namespace dtrain::job
