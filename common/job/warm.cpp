#include "common/job/warm.h"

#include <algorithm>
#include <string_view>

#include "common/job/framework.h"

namespace dtrain::job {

namespace {

constexpr std::string_view kPlainOptions = "bBdEIOPqRsSuv";  // of `python -h`, of one letter and without a value

bool is_python(std::string_view program) {
  program.remove_prefix(program.rfind('/') + 1);
  if (!program.starts_with("python")) return false;
  program.remove_prefix(std::string_view("python").size());
  return std::ranges::all_of(program, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

}  // namespace

std::uint32_t python_target(const std::vector<std::string>& argv) {
  if (argv.empty() || !is_python(argv[0])) return 0;
  for (std::size_t i = 1; i < argv.size(); ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with('-')) return static_cast<std::uint32_t>(i);
    if (word == "-m") return i + 1 < argv.size() ? static_cast<std::uint32_t>(i) : 0;
    if (word.size() < 2 || word[1] == '-') return 0;
    if (word[1] == 'W' || word[1] == 'X') {
      if (word.size() == 2) ++i;  // its value is the next word
    } else if (!std::ranges::all_of(word.substr(1), [](char c) { return kPlainOptions.find(c) != std::string_view::npos; })) {
      return 0;
    }
  }
  return 0;
}

std::vector<std::string> warm_of(const JobSpec& spec, const std::string& role) {
  const auto found = spec.roles.find(role);
  if (found == spec.roles.end()) return {};
  const std::vector<std::string>& asked = found->second.warm;
  if (asked.empty()) return rules_of(spec.framework).warm ? std::vector<std::string>{kWarmAuto} : std::vector<std::string>{};
  return asked.front() == kWarmNone ? std::vector<std::string>{} : asked;
}

bool is_module_name(std::string_view name) {
  if (name.empty() || name.size() > limits::kModuleNameBytes || name.back() == '.') return false;
  bool begins = true;
  for (const char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (begins ? !letter : !letter && c != '.' && (c < '0' || c > '9')) return false;
    begins = c == '.';
  }
  return true;
}

std::vector<std::string> warm_argv(const std::vector<std::string>& argv, const std::vector<std::string>& warm, const std::string& program,
                                   int socket) {
  const auto target = argv.begin() + static_cast<std::ptrdiff_t>(python_target(argv));
  std::vector<std::string> out(argv.begin(), target);
  out.insert(out.end(), {program, std::to_string(socket)});
  if (warm.front() == kWarmAuto) {
    out.emplace_back(kWarmAuto);
  } else {
    std::string modules;
    for (const std::string& module : warm) modules += (modules.empty() ? "" : ",") + module;
    out.insert(out.end(), {"list", std::move(modules)});
  }
  out.insert(out.end(), target, argv.end());
  return out;
}

}  // namespace dtrain::job
