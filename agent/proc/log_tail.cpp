#include "agent/proc/log_tail.h"

#include <algorithm>

namespace dtrain::proc {

using task::LogIndexRecord;

namespace {

constexpr std::size_t kRecordsPerBlock = 512;
constexpr std::size_t kReadBytes = 64 << 10;
constexpr std::size_t kBytesPerStep = 1 << 20;  // raw bytes looked at before step() returns
constexpr int kPiecesPerStep = 8192;            // likewise pieces passed over
constexpr std::uint64_t kTailRecordBytes = sizeof(LogIndexRecord);
constexpr std::int64_t kTailNanosecondsPerMillisecond = 1'000'000;

}  // namespace

TailFinder::TailFinder(std::vector<std::string> dirs, LogFilter filter, std::uint64_t lines, bool unindexed)
    : dirs_(std::move(dirs)), filter_(filter), lines_(lines), unindexed_(unindexed), dir_(dirs_.size()) {}

void TailFinder::answer(const LogPosition& position) {
  answer_dir_ = dir_ - 1;
  answer_ = position;
  have_answer_ = true;
}

// Bytes of the open file that no record covers.
Status TailFinder::open_tail_piece() {
  const auto index = file_->index_size();
  if (!index) return fail(index.error());
  index_end_ = *index / kTailRecordBytes * kTailRecordBytes;
  std::uint64_t covered = 0;
  AttemptNumber attempt = 0;
  if (index_end_ > 0) {
    const auto last = file_->read_index(index_end_ - kTailRecordBytes, 1);
    if (!last) return fail(last.error());
    if (!last->empty() && plausible(last->front(), size_)) {
      covered = std::min(last->front().offset + last->front().length, size_);
      attempt = last->front().attempt;
    }
  }
  const LogPosition at{file_->number(), index_end_, covered, attempt};
  const bool counts = !newest_ || unindexed_;
  if (!have_answer_) answer(counts ? LogPosition{at.file, at.index, size_, attempt} : at);
  if (counts && covered < size_) pieces_.push_back(Piece{LogSegment{covered, size_, attempt, task::LogStream::out, 0, modified_ms_}, at});
  newest_ = false;
  return {};
}

Result<bool> TailFinder::open_previous() {
  while (true) {
    while (!listed_ || numbers_.empty()) {
      if (listed_ && dir_ > 0) --dir_;
      if (dir_ == 0) return false;
      auto numbers = list_log_files(dirs_[dir_ - 1]);
      if (!numbers) return fail(numbers.error());
      numbers_ = std::move(*numbers);
      listed_ = true;
    }
    auto file = LogFile::open(dirs_[dir_ - 1], numbers_.back());
    numbers_.pop_back();
    if (!file) return fail(file.error());
    if (!*file) continue;  // removed by rotation meanwhile
    file_ = std::move(*file);
    const auto info = file_->data_stat();
    if (!info) return fail(info.error());
    size_ = static_cast<std::uint64_t>(info->st_size);
    modified_ms_ = std::int64_t{info->st_mtim.tv_sec} * 1000 + info->st_mtim.tv_nsec / kTailNanosecondsPerMillisecond;
    if (Status opened = open_tail_piece(); !opened) return fail(opened.error());
    return true;
  }
}

// The block of records before index_end_, as pieces; gaps between records are pieces of their own.
Status TailFinder::load_pieces() {
  const std::uint64_t count = std::min<std::uint64_t>(kRecordsPerBlock, index_end_ / kTailRecordBytes);
  const std::uint64_t first = index_end_ - count * kTailRecordBytes;
  const std::uint64_t from = first >= kTailRecordBytes ? first - kTailRecordBytes : first;  // one more, for a gap before the block
  const auto records = file_->read_index(from, static_cast<std::size_t>((index_end_ - from) / kTailRecordBytes));
  if (!records) return fail(records.error());
  std::uint64_t position = 0;
  AttemptNumber attempt = 0;
  for (std::size_t i = 0; i < records->size(); ++i) {
    const LogIndexRecord& record = (*records)[i];
    if (!plausible(record, size_)) continue;
    const std::uint64_t at = from + i * kTailRecordBytes;
    const std::uint64_t end = std::min(record.offset + record.length, size_);
    if (at >= first) {
      const std::int64_t time_ms = record.wall_ns / kTailNanosecondsPerMillisecond;
      if (record.offset > position)
        pieces_.push_back(Piece{LogSegment{position, record.offset, attempt, task::LogStream::out, 0, time_ms},
                                LogPosition{file_->number(), at, position, attempt}});
      const std::uint64_t begin = std::max(position, record.offset);
      pieces_.push_back(
          Piece{LogSegment{begin, std::max(begin, end), record.attempt, static_cast<task::LogStream>(record.stream), record.rank, time_ms},
                LogPosition{file_->number(), at, begin, record.attempt}});
    }
    position = std::max(position, end);
    attempt = record.attempt;
  }
  index_end_ = first;
  return {};
}

// Looks at the last bytes of the last piece. Returns true if the last lines begin there.
Result<bool> TailFinder::count_lines() {
  Piece& piece = pieces_.back();
  const std::uint64_t length = std::min<std::uint64_t>(kReadBytes, piece.segment.end - piece.segment.begin);
  const std::uint64_t from = piece.segment.end - length;
  std::string bytes;
  if (Status read = file_->read_data(from, static_cast<std::size_t>(length), bytes); !read) return fail(read.error());
  for (std::size_t i = bytes.size(); i > 0; --i) {
    const bool last_of_all = !any_byte_;
    any_byte_ = true;
    if (bytes[i - 1] != '\n' || last_of_all) continue;
    if (++seen_ < lines_) continue;
    LogPosition at = piece.at;
    at.byte = from + i;
    answer(at);
    return true;
  }
  LogPosition at = piece.at;
  at.byte = from;
  answer(at);
  piece.segment.end = from;
  return false;
}

Result<bool> TailFinder::step() {
  std::size_t bytes = 0;
  int pieces = 0;
  while (!found_ && bytes < kBytesPerStep && pieces < kPiecesPerStep) {
    if (!pieces_.empty()) {
      const LogSegment& segment = pieces_.back().segment;
      if (segment.attempt < filter_.first && any_byte_) return found_ = true;  // only older attempts before this point
      if (segment.begin >= segment.end || !segment.matches(filter_)) {
        pieces_.pop_back();
        ++pieces;
        continue;
      }
      if (lines_ == 0) return found_ = true;
      bytes += static_cast<std::size_t>(std::min<std::uint64_t>(kReadBytes, segment.end - segment.begin));
      const auto begins = count_lines();
      if (!begins) return fail(begins.error());
      found_ = *begins;
    } else if (file_ && index_end_ > 0) {
      if (Status loaded = load_pieces(); !loaded) return fail(loaded.error());
    } else {
      const auto opened = open_previous();
      if (!opened) return fail(opened.error());
      if (!*opened) return found_ = true;  // fewer lines than asked for
      if (lines_ == 0) return found_ = true;
    }
  }
  return found_;
}

}  // namespace dtrain::proc
