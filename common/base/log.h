// Where the deciding code writes its log. The agent renders lines (time=... level=... event=...); a test collects them.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace dtrain {

enum class LogLevel : unsigned char { debug, info, warn, error };

struct LogField {
  std::string_view key;
  std::string value;
};

class Log {
 public:
  virtual ~Log() = default;
  virtual void write(LogLevel level, std::string_view event, std::span<const LogField> fields) = 0;
  void write(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
    write(level, event, std::span<const LogField>(fields.begin(), fields.size()));
  }
};

}  // namespace dtrain
