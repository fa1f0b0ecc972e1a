// Test helpers: a scratch directory that removes itself, and a writer of log files as the shim writes them.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/check.h"
#include "common/task/log_format.h"

namespace dtrain::proc::testing {

class ScratchDir {
 public:
  ScratchDir() {
    std::string name = (std::filesystem::temp_directory_path() / "dtrain-proc-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  ~ScratchDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void append(const std::string& path, const void* bytes, std::size_t size) {
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  CHECK(file.good());
}
inline void append(const std::string& path, const std::string& bytes) { append(path, bytes.data(), bytes.size()); }

class LogWriter {
 public:
  explicit LogWriter(std::string dir) : dir_(std::move(dir)) { std::filesystem::create_directories(dir_); }

  void bytes(const std::string& text) { append(path(), text); }
  void record(std::uint64_t offset, std::size_t length, std::uint32_t attempt, task::LogStream stream = task::LogStream::out,
              std::int64_t time_ms = 1000, std::uint16_t rank = 0) {
    task::LogIndexRecord record;
    std::memset(&record, 0, sizeof record);
    record.offset = offset;
    record.wall_ns = time_ms * 1'000'000;
    record.length = static_cast<std::uint32_t>(length);
    record.attempt = attempt;
    record.stream = static_cast<std::uint8_t>(stream);
    record.rank = rank;
    append(path() + ".idx", &record, sizeof record);
  }
  void write(const std::string& text, std::uint32_t attempt, task::LogStream stream = task::LogStream::out, std::int64_t time_ms = 1000,
             std::uint16_t rank = 0) {
    const std::uint64_t offset = size();
    bytes(text);
    record(offset, text.size(), attempt, stream, time_ms, rank);
  }
  void rotate() {
    ++number_;
    bytes("");  // the next file is made at once
  }
  void remove(std::uint64_t number) {
    std::filesystem::remove(path(number));
    std::filesystem::remove(path(number) + ".idx");
  }
  std::uint64_t number() const { return number_; }
  std::uint64_t size() const { return std::filesystem::exists(path()) ? std::filesystem::file_size(path()) : 0; }
  std::string path() const { return path(number_); }
  std::string path(std::uint64_t number) const { return dir_ + "/log." + std::to_string(number); }

 private:
  std::string dir_;
  std::uint64_t number_ = 0;
};

}  // namespace dtrain::proc::testing
