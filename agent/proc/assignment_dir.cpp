#include "agent/proc/assignment_dir.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "agent/base/small_file.h"
#include "agent/dtrain-shim/protocol.h"

namespace dtrain::proc {

namespace {

template <class T>
bool take_number(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Calls `visit` with each entry's name; never for an unreadable directory.
template <class F>
void for_each_name(const std::string& directory, F visit) {
  std::error_code error;
  for (std::filesystem::directory_iterator i(directory, error), end; !error && i != end; i.increment(error))
    visit(i->path().filename().string());
}

}  // namespace

std::optional<AssignmentId> parse_assignment(std::string_view text) {
  const std::size_t first = text.find('.'), second = text.find('.', first + 1), dash = text.rfind('-');
  if (first == std::string_view::npos || second == std::string_view::npos || dash == std::string_view::npos || dash < second)
    return std::nullopt;
  AssignmentId id;
  id.task.role = text.substr(second + 1, dash - second - 1);
  if (!take_number(text.substr(0, first), id.job) || !take_number(text.substr(first + 1, second - first - 1), id.generation) ||
      !take_number(text.substr(dash + 1), id.task.index) || id.task.role.empty() || id.text() != text)
    return std::nullopt;
  return id;
}

std::vector<AssignmentId> list_assignments(const std::string& tasks_dir) {
  std::vector<AssignmentId> found;
  for_each_name(tasks_dir, [&](const std::string& name) {
    if (auto id = parse_assignment(name)) found.push_back(std::move(*id));
  });
  std::sort(found.begin(), found.end());
  return found;
}

std::uint32_t next_log_number(const std::string& directory) {
  constexpr std::string_view kPrefix = "log.";
  std::uint32_t next = 0;
  for_each_name(directory, [&](const std::string& name) {
    std::uint32_t number = 0;
    if (name.compare(0, kPrefix.size(), kPrefix) == 0 && take_number(std::string_view(name).substr(kPrefix.size()), number))
      next = std::max(next, number + 1);
  });
  return next;
}

// A shim writes its state when it comes up.
bool launch_came_to_nothing(const std::string& directory) {
  struct stat launch {
  }, state{};
  if (::stat((directory + "/" + shim::kLaunchFile).c_str(), &launch) != 0) return false;
  if (::stat((directory + "/" + shim::kStateFile).c_str(), &state) != 0) return true;
  const auto at = [](const struct stat& info) { return std::pair(info.st_mtim.tv_sec, info.st_mtim.tv_nsec); };
  return at(launch) > at(state);
}

Result<bool> make_passable_directory(const std::string& path) {
  std::error_code error;
  const bool is_new = ::mkdir(path.c_str(), 0711) == 0;
  if (!is_new) std::filesystem::create_directories(path, error);
  if (!error && ::chmod(path.c_str(), 0711) == 0) return is_new;
  return fail(ErrorCode::io, "could not create directory " + path + ": " + (error ? error.message() : cause_of(errno)),
              "check free space and permissions above it");
}

}  // namespace dtrain::proc
