#include "common/node/host_health.h"

#include <algorithm>

namespace dtrain::node {

std::string first_line(std::string_view output) {
  std::string line;
  while (line.find_first_not_of(" ?") == std::string::npos && !output.empty()) {
    line = output.substr(0, output.find('\n'));
    output.remove_prefix(std::min(output.size(), line.size() + 1));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    for (char& c : line)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return line.substr(0, kHealthLineBytes);
}

std::string why_failed(const std::string& program, std::int32_t code, std::int32_t signal, const std::string& cause,
                       std::string_view output) {
  std::string text = program + " ";
  if (!cause.empty()) text += cause;
  else if (signal != 0) text += "was killed by signal " + std::to_string(signal);
  else text += "ended with " + std::to_string(code);
  const std::string line = first_line(output);
  return line.empty() ? text : text + ": " + line;
}

std::string why_unfit(const HostCheck& check) {
  return check.passed() ? "" : why_failed("health check", check.code, check.signal, check.cause, check.output);
}

std::optional<HostHealth::Change> HostHealth::checked(Instant now, const HostCheck& check) {
  std::string reason = why_unfit(check);
  const bool turned = reason.empty() != reason_.empty();
  const bool first = !known_;
  known_ = true;
  if (!turned && !first && (reason == reason_ || now < since_ + kHealthReasonEvery)) return std::nullopt;
  since_ = now;
  reason_ = reason;
  return Change{std::move(reason), turned};
}

}  // namespace dtrain::node
