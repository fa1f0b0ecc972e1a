// Collects the mistakes of one job file and knows where each field stands.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/manifest.h"

namespace dtrain::job {

class FileErrors {
 public:
  explicit FileErrors(std::string file_name) : file_name_(std::move(file_name)) {}

  // Where the field with this path stands. line 0: it came with --set.
  void place(const std::string& path, std::uint32_t line) { places_->emplace(path, line); }

  // Uses the line of the field, or of the nearest field that encloses it.
  void add(std::string code, std::string path, std::string message, std::string next = "");
  void add_at(std::uint32_t line, std::string code, std::string path, std::string message, std::string next = "");

  // Adds what validate() found, without consequences of mistakes already reported for the same field.
  void add_rules(std::vector<FileError> found);

  // Adds mistakes of another document of the same file, whose fields have places of their own.
  void add_all(std::vector<FileError> found);

  // Without mistakes, for the same file. A file may hold thousands of jobs: they share its places.
  FileErrors for_same_places() const;

  bool empty() const { return errors_.empty(); }
  bool full() const { return errors_.size() >= kReportedMistakes; }  // further ones are not kept

  std::vector<FileError> take();  // ordered by line, those of --set last

 private:
  void push(FileError error);

  std::string file_name_;
  using Places = std::map<std::string, std::uint32_t, std::less<>>;
  std::shared_ptr<Places> places_ = std::make_shared<Places>();
  std::vector<FileError> errors_;
  bool left_out_ = false;
};

std::string join_path(std::string_view parent, std::string_view key);  // parent.key
std::string item_path(std::string_view parent, std::size_t index);     // parent[index]

}  // namespace dtrain::job
