#include "common/job/file_errors.h"

#include <algorithm>
#include <limits>

namespace dtrain::job {

namespace {

constexpr std::string_view kSetOption = "--set";

bool is_within(std::string_view path, std::string_view outer) {
  if (!path.starts_with(outer)) return false;
  return outer.empty() || path.size() == outer.size() || path[outer.size()] == '.' || path[outer.size()] == '[';
}

std::string_view parent_of(std::string_view path) {
  const std::size_t cut = path.find_last_of(".[");
  return cut == std::string_view::npos ? std::string_view() : path.substr(0, cut);
}

}  // namespace

std::string FileError::text() const {
  std::string out = file;
  if (line > 0) out += ":" + std::to_string(line);
  if (!out.empty()) out += ": ";
  if (!path.empty()) out += path + ": ";
  out += message;
  return next.empty() ? out : out + "; " + next;
}

std::string join_path(std::string_view parent, std::string_view key) {
  return parent.empty() ? std::string(key) : std::string(parent) + "." + std::string(key);
}

std::string item_path(std::string_view parent, std::size_t index) { return std::string(parent) + "[" + std::to_string(index) + "]"; }

void FileErrors::add(std::string code, std::string path, std::string message, std::string next) {
  std::string_view at = path;
  auto found = places_->find(at);
  while (found == places_->end() && !at.empty()) {
    at = parent_of(at);
    found = places_->find(at);
  }
  FileError error{std::move(code), file_name_, 0, std::move(path), std::move(message), std::move(next)};
  if (found != places_->end()) {
    error.line = found->second;
    if (error.line == 0) error.file = kSetOption;
  }
  push(std::move(error));
}

void FileErrors::add_at(std::uint32_t line, std::string code, std::string path, std::string message, std::string next) {
  push({std::move(code), file_name_, line, std::move(path), std::move(message), std::move(next)});
}

void FileErrors::push(FileError error) {
  // A part of a file that stands for several roles is read for each of them.
  const auto same = [&](const FileError& known) {
    return known.file == error.file && known.line == error.line && known.path == error.path && known.message == error.message;
  };
  if (std::ranges::any_of(errors_, same)) return;
  if (full()) left_out_ = true;
  else errors_.push_back(std::move(error));
}

void FileErrors::add_rules(std::vector<FileError> found) {
  const std::size_t before = errors_.size();
  for (auto& error : found) {
    const bool follows = std::any_of(errors_.begin(), errors_.begin() + static_cast<std::ptrdiff_t>(before),
                                     [&](const FileError& known) { return is_within(error.path, known.path); });
    if (!follows) add(std::move(error.code), std::move(error.path), std::move(error.message), std::move(error.next));
  }
}

void FileErrors::add_all(std::vector<FileError> found) {
  for (FileError& error : found) push(std::move(error));
}

FileErrors FileErrors::for_same_places() const {
  FileErrors out(file_name_);
  out.places_ = places_;
  return out;
}

std::vector<FileError> FileErrors::take() {
  std::stable_sort(errors_.begin(), errors_.end(), [&](const FileError& a, const FileError& b) {
    const auto key = [&](const FileError& e) { return e.file == file_name_ ? e.line : std::numeric_limits<std::uint32_t>::max(); };
    return key(a) < key(b);
  });
  if (left_out_) errors_.push_back({"limit", file_name_, 0, "", "further mistakes are not shown", "correct these first"});
  left_out_ = false;
  return std::move(errors_);
}

}  // namespace dtrain::job
