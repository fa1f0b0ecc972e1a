#include "agent/proc/log_reader.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "common/base/limits.h"

namespace dtrain::proc {

using task::LogIndexRecord;

namespace {

constexpr std::size_t kRecordsPerRead = 512;  // 16 KiB of index at a time
constexpr int kRecordsPerStep = 4096;         // skipped before a step returns `busy`
constexpr std::uint64_t kRecordBytes = sizeof(LogIndexRecord);
constexpr std::int64_t kNanosecondsPerMillisecond = 1'000'000;

std::string file_path(const std::string& dir, std::uint64_t number) { return dir + "/log." + std::to_string(number); }

Error io_error(const std::string& verb, const std::string& path) {
  return Error{ErrorCode::io, "could not " + verb + " " + path + ": " + std::strerror(errno), "check the agent's disk"};
}

// A log is a plain file: anything else with its name is neither followed nor waited for.
int open_plain(const std::string& path) { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); }

std::int64_t modified_ms(const struct stat& info) {
  return std::int64_t{info.st_mtim.tv_sec} * 1000 + info.st_mtim.tv_nsec / kNanosecondsPerMillisecond;
}

// "log.12" -> 12; anything else is no log file.
std::optional<std::uint64_t> number_of(std::string_view name) {
  constexpr std::string_view kPrefix = "log.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  if (std::to_string(number) != name) return std::nullopt;  // log.007 is not log.7
  return number;
}

}  // namespace

Result<std::optional<LogFile>> LogFile::open(const std::string& dir, std::uint64_t number) {
  LogFile file(dir, number);
  const std::string path = file_path(dir, number);
  file.data_.reset(open_plain(path));
  if (!file.data_) {
    if (errno == ENOENT) return std::optional<LogFile>();
    return fail(io_error("open log file", path));
  }
  file.index_.reset(open_plain(path + ".idx"));  // missing or unreadable: an empty one
  return std::optional<LogFile>(std::move(file));
}

Result<struct stat> LogFile::data_stat() const {
  struct stat info {};
  if (::fstat(data_.get(), &info) != 0) return fail(io_error("read size of log file", file_path(dir_, number_)));
  return info;
}

Result<std::uint64_t> LogFile::index_size() {
  if (!index_) index_.reset(open_plain(file_path(dir_, number_) + ".idx"));
  if (!index_) return std::uint64_t{0};
  struct stat info {};
  if (::fstat(index_.get(), &info) != 0) return fail(io_error("read size of log index", file_path(dir_, number_) + ".idx"));
  return static_cast<std::uint64_t>(info.st_size);
}

Status LogFile::read_data(std::uint64_t offset, std::size_t max, std::string& out) const {
  const std::size_t before = out.size();
  out.resize(before + max);
  std::size_t got = 0;
  while (got < max) {
    const ssize_t n = ::pread(data_.get(), out.data() + before + got, max - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const Error error = io_error("read log file", file_path(dir_, number_));
      out.resize(before);
      return fail(error);
    }
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  out.resize(before + got);
  return {};
}

Result<std::vector<LogIndexRecord>> LogFile::read_index(std::uint64_t offset, std::size_t max) {
  if (!index_) index_.reset(open_plain(file_path(dir_, number_) + ".idx"));
  if (!index_) return std::vector<LogIndexRecord>();
  std::vector<LogIndexRecord> records(max);
  const std::size_t wanted = max * kRecordBytes;
  std::size_t got = 0;
  while (got < wanted) {
    const ssize_t n = ::pread(index_.get(), reinterpret_cast<char*>(records.data()) + got, wanted - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(io_error("read log index", file_path(dir_, number_) + ".idx"));
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  records.resize(got / kRecordBytes);
  return records;
}

Result<std::vector<std::uint64_t>> list_log_files(const std::string& dir) {
  std::vector<std::uint64_t> numbers;
  DIR* handle = ::opendir(dir.c_str());
  if (handle == nullptr) {
    if (errno == ENOENT) return numbers;
    return fail(io_error("list directory", dir));
  }
  while (const dirent* entry = ::readdir(handle))
    if (const auto number = number_of(entry->d_name)) numbers.push_back(*number);
  ::closedir(handle);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

bool plausible(const LogIndexRecord& record, std::uint64_t size) {
  return record.offset <= size && record.stream <= static_cast<std::uint8_t>(task::LogStream::err) && record.wall_ns >= 0 &&
         record.rank <= limits::kRanksPerTask && record.reserved == 0 &&
         std::all_of(std::begin(record.reserved2), std::end(record.reserved2), [](std::uint8_t b) { return b == 0; });
}

Result<std::optional<AttemptNumber>> newest_attempt(const std::string& dir) {
  const auto numbers = list_log_files(dir);
  if (!numbers) return fail(numbers.error());
  for (auto number = numbers->rbegin(); number != numbers->rend(); ++number) {
    auto file = LogFile::open(dir, *number);
    if (!file) return fail(file.error());
    if (!*file) continue;  // removed by rotation meanwhile
    const auto size = (*file)->index_size();
    if (!size) return fail(size.error());
    const auto info = (*file)->data_stat();
    if (!info) return fail(info.error());
    const std::uint64_t whole = *size / kRecordBytes;
    const std::uint64_t first = whole > kRecordsPerRead ? whole - kRecordsPerRead : 0;
    const auto records = (*file)->read_index(first * kRecordBytes, kRecordsPerRead);
    if (!records) return fail(records.error());
    for (auto record = records->rbegin(); record != records->rend(); ++record)
      if (plausible(*record, static_cast<std::uint64_t>(info->st_size))) return std::optional<AttemptNumber>(record->attempt);
  }
  return std::optional<AttemptNumber>();
}

LogReader::LogReader(std::string dir, LogFilter filter, LogPosition start)
    : dir_(std::move(dir)), filter_(filter), next_file_(start.file), attempt_(start.attempt) {
  if (start.byte > 0 || start.index > 0) start_ = start;
}

// A file without wanted bytes need not be walked through: its last record is its newest.
bool LogReader::skip_whole_file(LogFile& file, const struct stat& info) {
  const auto size = file.index_size();
  if (!size || *size < kRecordBytes) return false;
  const auto last = file.read_index((*size / kRecordBytes - 1) * kRecordBytes, 1);
  if (!last || last->empty() || !plausible(last->front(), static_cast<std::uint64_t>(info.st_size))) return false;
  if (last->front().attempt >= filter_.first && modified_ms(info) >= filter_.since_ms) return false;
  attempt_ = last->front().attempt;
  return true;
}

Result<bool> LogReader::open_next() {
  auto file = LogFile::open(dir_, next_file_);
  if (!file) return fail(file.error());
  if (!*file) {
    const auto numbers = list_log_files(dir_);
    if (!numbers) return fail(numbers.error());
    const auto found = std::lower_bound(numbers->begin(), numbers->end(), next_file_);
    if (found == numbers->end()) return false;
    if (opened_any_) lost_files_ += *found - next_file_;
    next_file_ = *found;
    start_.reset();
    file = LogFile::open(dir_, next_file_);
    if (!file) return fail(file.error());
    if (!*file) return false;  // removed by rotation between the two looks; the next step looks again
  }
  const auto info = (*file)->data_stat();
  if (!info) return fail(info.error());
  opened_any_ = true;
  file_ = std::move(*file);
  size_ = static_cast<std::uint64_t>(info->st_size);
  modified_ms_ = modified_ms(*info);
  position_ = start_ ? std::min(start_->byte, size_) : 0;
  index_at_ = start_ ? start_->index : 0;
  block_.clear();
  block_used_ = 0;
  complete_.reset();
  if (!start_) {
    const auto more = successor_exists();
    if (!more) return fail(more.error());
    if (*more && skip_whole_file(*file_, *info)) {
      next_file_ = file_->number() + 1;
      file_.reset();
    }
  }
  start_.reset();
  return true;
}

Result<bool> LogReader::successor_exists() {
  struct stat info {};
  if (::stat(file_path(dir_, file_->number() + 1).c_str(), &info) == 0) return true;
  const auto own = file_->data_stat();
  if (!own) return fail(own.error());
  if (own->st_nlink > 0) return false;
  // The file was rotated away, and perhaps its successors too.
  const auto numbers = list_log_files(dir_);
  if (!numbers) return fail(numbers.error());
  return !numbers->empty() && numbers->back() > file_->number();
}

Status LogReader::refresh_size() {
  const auto info = file_->data_stat();
  if (!info) return fail(info.error());
  size_ = static_cast<std::uint64_t>(info->st_size);
  modified_ms_ = modified_ms(*info);
  position_ = std::min(position_, size_);  // somebody truncated the file: further bytes are new
  return {};
}

Result<bool> LogReader::next_record() {
  if (block_used_ < block_.size()) return true;
  auto block = file_->read_index(index_at_, kRecordsPerRead);
  if (!block) return fail(block.error());
  if (block->empty()) {
    const auto size = file_->index_size();
    if (!size) return fail(size.error());
    index_at_ = std::min(index_at_, *size);
    return false;
  }
  block_ = std::move(*block);
  block_used_ = 0;
  return true;
}

// Uses one record, or (leaving it) the bytes before it that no record covers.
Status LogReader::take_record(const LogIndexRecord& record) {
  const std::uint64_t end = record.offset + record.length;
  if (end > size_ || record.offset > size_)
    if (Status refreshed = refresh_size(); !refreshed) return refreshed;
  if (!plausible(record, size_)) {
    // Torn or foreign bytes: the next record may begin at any later byte.
    ++index_at_;
    block_.clear();
    block_used_ = 0;
    return {};
  }
  const std::int64_t time_ms = record.wall_ns / kNanosecondsPerMillisecond;
  if (record.offset > position_) {
    segment_ = LogSegment{position_, record.offset, attempt_, task::LogStream::out, 0, time_ms};
    position_ = record.offset;
    return {};
  }
  index_at_ += kRecordBytes;
  ++block_used_;
  attempt_ = record.attempt;
  const std::uint64_t until = std::min(end, size_);
  if (until <= position_) return {};
  segment_ = LogSegment{position_, until, record.attempt, static_cast<task::LogStream>(record.stream), record.rank, time_ms};
  position_ = until;
  return {};
}

Result<LogReader::Step> LogReader::step() {
  if (segment_.begin < segment_.end) return Step::segment;
  for (int budget = kRecordsPerStep; budget > 0; --budget) {
    if (!file_) {
      const auto opened = open_next();
      if (!opened) return fail(opened.error());
      if (!*opened) return Step::idle;
      if (!file_) continue;
    }
    const auto more = next_record();
    if (!more) return fail(more.error());
    if (*more) {
      if (Status taken = take_record(block_[block_used_]); !taken) return fail(taken.error());
    } else if (!complete_) {
      // A file is complete when it has a successor; only then is the index read for the last time. The size is taken
      // first, so that a living writer's record for bytes within it is most likely there.
      const auto successor = successor_exists();
      if (!successor) return fail(successor.error());
      if (!*successor && !finished_) return Step::idle;
      if (Status refreshed = refresh_size(); !refreshed) return fail(refreshed.error());
      complete_ = size_;
      continue;
    } else if (position_ < *complete_) {
      segment_ = LogSegment{position_, *complete_, attempt_, task::LogStream::out, 0, modified_ms_};
      position_ = *complete_;
    } else {
      const auto successor = successor_exists();
      if (!successor) return fail(successor.error());
      if (!*successor) return Step::idle;
      if (Status refreshed = refresh_size(); !refreshed) return fail(refreshed.error());
      if (*complete_ < size_) {  // only finish() declared it complete, and the writer continued
        complete_ = size_;
        continue;
      }
      next_file_ = file_->number() + 1;
      file_.reset();
      continue;
    }
    if (segment_.begin < segment_.end && segment_.matches(filter_)) return Step::segment;
    segment_ = LogSegment{};
  }
  return Step::busy;
}

Status LogReader::read(std::size_t max, std::string& out) {
  const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(max, segment_.end - segment_.begin));
  const std::size_t before = out.size();
  if (Status done = file_->read_data(segment_.begin, wanted, out); !done) return done;
  const std::size_t got = out.size() - before;
  segment_.begin = got < wanted ? segment_.end : segment_.begin + got;  // fewer bytes: truncated meanwhile
  return {};
}

}  // namespace dtrain::proc
