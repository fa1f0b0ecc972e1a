#include "agent/proc/log_reader.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "agent/proc/log_tail.h"
#include "tests/unit/proc/log_files.h"

namespace dtrain::proc {
namespace {

using testing::LogWriter;
using testing::ScratchDir;

struct Piece {
  std::string bytes;
  AttemptNumber attempt;
  task::LogStream stream;
  bool operator==(const Piece&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Piece& p) {
  return out << '"' << p.bytes << "\" attempt " << p.attempt << " stream " << static_cast<int>(p.stream);
}

// Everything that is there at the moment.
std::vector<Piece> drain(LogReader& reader, std::size_t read_size = 7) {
  std::vector<Piece> pieces;
  while (true) {
    const auto step = reader.step();
    EXPECT_TRUE(step.has_value()) << step.error().text();
    if (!step || *step == LogReader::Step::idle) return pieces;
    if (*step == LogReader::Step::busy) continue;
    const LogSegment segment = reader.segment();
    std::string bytes;
    EXPECT_TRUE(reader.read(read_size, bytes).has_value());
    if (!pieces.empty() && pieces.back().attempt == segment.attempt && pieces.back().stream == segment.stream) pieces.back().bytes += bytes;
    else pieces.push_back({bytes, segment.attempt, segment.stream});
  }
}

std::string text_of(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text += piece.bytes;
  return text;
}

TEST(LogReader, GivesBytesWithStreamAndAttempt) {
  ScratchDir dir;
  LogWriter log(dir / "1.1.worker-1");
  log.write("one\n", 1);
  log.write("bad\n", 1, task::LogStream::err);
  log.write("two\n", 2);
  LogReader reader(dir / "1.1.worker-1", {});
  const std::vector<Piece> expected = {
      {"one\n", 1, task::LogStream::out}, {"bad\n", 1, task::LogStream::err}, {"two\n", 2, task::LogStream::out}};
  EXPECT_EQ(drain(reader), expected);
  EXPECT_EQ(reader.attempt(), 2u);
}

TEST(LogReader, AMissingDirectoryIsEmptyUntilItAppears) {
  ScratchDir dir;
  LogReader reader(dir / "1.1.worker-1", {});
  EXPECT_TRUE(drain(reader).empty());
  LogWriter log(dir / "1.1.worker-1");
  log.write("now\n", 1);
  EXPECT_EQ(text_of(drain(reader)), "now\n");
}

TEST(LogReader, HoldsBytesBackUntilTheirRecordIsThere) {
  ScratchDir dir;
  LogWriter log(dir / "a");
  log.write("x", 1);
  log.bytes("error");
  LogReader reader(dir / "a", {});
  EXPECT_EQ(text_of(drain(reader)), "x");
  log.record(1, 5, 1, task::LogStream::err);
  const std::vector<Piece> expected = {{"error", 1, task::LogStream::err}};
  EXPECT_EQ(drain(reader), expected);
}

TEST(LogReader, UnindexedTailCountsAsStdoutOfTheLastAttemptAtTheEnd) {
  ScratchDir dir;
  LogWriter log(dir / "a");
  log.write("x", 3, task::LogStream::err);
  log.bytes("tail");
  LogReader reader(dir / "a", {});
  drain(reader);
  reader.finish();
  const std::vector<Piece> expected = {{"tail", 3, task::LogStream::out}};
  EXPECT_EQ(drain(reader), expected);
  EXPECT_TRUE(drain(reader).empty());
}

TEST(LogReader, MissingIndexGivesAllBytes) {
  ScratchDir dir;
  LogWriter log(dir / "a");
  log.bytes("everything\n");
  LogReader reader(dir / "a", {});
  reader.finish();
  EXPECT_EQ(text_of(drain(reader)), "everything\n");
}

TEST(LogReader, AGapBetweenRecordsIsGivenOnce) {
  ScratchDir dir;
  LogWriter log(dir / "a");
  log.write("ab", 1, task::LogStream::err);
  log.bytes("cd");  // the shim was killed here; the next one goes on in the same file
  log.write("ef", 2);
  LogReader reader(dir / "a", {});
  const std::vector<Piece> expected = {{"ab", 1, task::LogStream::err}, {"cd", 1, task::LogStream::out}, {"ef", 2, task::LogStream::out}};
  EXPECT_EQ(drain(reader), expected);
}

TEST(LogReader, ATornRecordCostsNoBytesAndLaterRecordsAreFoundAgain) {
  ScratchDir dir;
  LogWriter log(dir / "a");
  log.write("ab", 1);
  log.bytes("cd");
  testing::append(log.path() + ".idx", std::string("\x02\0\0\0\0\0\0", 7));
  log.write("ef", 2, task::LogStream::err);
  LogReader reader(dir / "a", {});
  reader.finish();
  const std::vector<Piece> expected = {{"abcd", 1, task::LogStream::out}, {"ef", 2, task::LogStream::err}};
  EXPECT_EQ(drain(reader), expected);
}

TEST(LogReader, FollowsRotationAndFinishesTheOldFileFirst) {
  ScratchDir dir;
  LogWriter log(dir / "a");
  log.write("one ", 1);
  LogReader reader(dir / "a", {});
  EXPECT_EQ(text_of(drain(reader)), "one ");
  log.bytes("tail ");
  log.rotate();
  log.write("two", 1);
  EXPECT_EQ(text_of(drain(reader)), "tail two");
}

TEST(LogReader, ReadsOnInAFileThatWasRemovedUnderIt) {
  ScratchDir dir;
  LogWriter log(dir / "a");
  log.write("first ", 1);
  LogReader reader(dir / "a", {});
  ASSERT_EQ(*reader.step(), LogReader::Step::segment);
  log.write("second ", 1);
  for (int i = 0; i < 3; ++i) {
    log.rotate();
    log.write("gone ", 1);
  }
  for (std::uint64_t number = 0; number < 3; ++number) log.remove(number);
  EXPECT_EQ(text_of(drain(reader)), "first second gone ");
  EXPECT_EQ(reader.lost_files(), 2u);
}

TEST(LogReader, FilterSelectsAttemptStreamAndTime) {
  ScratchDir dir;
  LogWriter log(dir / "a");
  log.write("1 ", 1, task::LogStream::out, 1000);
  log.rotate();
  log.write("2 ", 2, task::LogStream::out, 2000);
  log.write("2e ", 2, task::LogStream::err, 2500);
  log.write("3 ", 3, task::LogStream::out, 3000);
  const auto with = [&](LogFilter filter) {
    LogReader reader(dir / "a", filter);
    reader.finish();
    return text_of(drain(reader));
  };
  EXPECT_EQ(with({.first = 2, .last = 2}), "2 2e ");
  EXPECT_EQ(with({.first = 3}), "3 ");
  EXPECT_EQ(with({.since_ms = 2500}), "2e 3 ");
  EXPECT_EQ(with({.stderr_only = true}), "2e ");
}

TEST(LogReader, NewestAttemptIsOfTheLastRecord) {
  ScratchDir dir;
  EXPECT_EQ(*newest_attempt(dir / "none"), std::nullopt);
  LogWriter log(dir / "a");
  log.bytes("x");
  EXPECT_EQ(*newest_attempt(dir / "a"), std::nullopt);
  log.record(0, 1, 4);
  log.rotate();
  log.bytes("y");
  EXPECT_EQ(*newest_attempt(dir / "a"), 4u);
  log.record(1, 0, 5);  // an attempt that has said nothing yet
  EXPECT_EQ(*newest_attempt(dir / "a"), 5u);
}

std::string tail_of(const std::string& dir, std::uint64_t lines, LogFilter filter = {}) {
  TailFinder finder({dir}, filter, lines, true);
  while (true) {
    const auto found = finder.step();
    EXPECT_TRUE(found.has_value());
    if (!found || *found) break;
  }
  LogReader reader(dir, filter, finder.position());
  reader.finish();
  return text_of(drain(reader));
}

TEST(TailFinder, CountsLinesFromTheEnd) {
  ScratchDir dir;
  LogWriter log(dir / "a");
  log.write("1\n2\n", 1);
  log.rotate();
  log.write("3", 1);
  log.write("\n4\n5", 1);
  EXPECT_EQ(tail_of(dir / "a", 0), "");
  EXPECT_EQ(tail_of(dir / "a", 1), "5");
  EXPECT_EQ(tail_of(dir / "a", 2), "4\n5");
  EXPECT_EQ(tail_of(dir / "a", 3), "3\n4\n5");
  EXPECT_EQ(tail_of(dir / "a", 4), "2\n3\n4\n5");
  EXPECT_EQ(tail_of(dir / "a", 9), "1\n2\n3\n4\n5");
}

// ---- property: whatever happens to files and index, each byte once, in order. Twin: the plain
// concatenation.

RC_GTEST_PROP(LogReaderProperty, EachByteOnceInOrder, ()) {
  ScratchDir dir;
  LogWriter log(dir / "a");
  LogReader reader(dir / "a", {});
  std::string twin, read;
  std::uint32_t attempt = 1;
  const int actions = *rc::gen::inRange(1, 60);
  for (int i = 0; i < actions; ++i) {
    const auto text = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab\n")));
    switch (*rc::gen::inRange(0, 11)) {
      case 0:
      case 1:
      case 2:
        log.write(text, attempt, *rc::gen::element(task::LogStream::out, task::LogStream::err));
        twin += text;
        break;
      case 3:  // killed between the two writes
        log.bytes(text);
        twin += text;
        break;
      case 4: log.rotate(); break;
      case 5:  // a record that was torn
        testing::append(log.path() + ".idx", *rc::gen::container<std::string>(rc::gen::arbitrary<char>()));
        break;
      case 6:  // the index lost its end, or all of it
        if (std::filesystem::exists(log.path() + ".idx")) {
          const auto size = std::filesystem::file_size(log.path() + ".idx");
          std::filesystem::resize_file(log.path() + ".idx", *rc::gen::inRange<std::uintmax_t>(0, size + 1));
        }
        break;
      case 7: std::filesystem::remove(log.path() + ".idx"); break;
      case 8:  // a record of what is not there
        log.record(*rc::gen::inRange<std::uint64_t>(0, 200), *rc::gen::inRange<std::size_t>(0, 200), attempt);
        break;
      case 9:
        ++attempt;
        log.record(log.size(), 0, attempt);
        break;
      case 10: read += text_of(drain(reader, *rc::gen::inRange<std::size_t>(1, 40))); break;
    }
    RC_ASSERT(twin.starts_with(read));
  }
  reader.finish();
  read += text_of(drain(reader));
  RC_ASSERT(read == twin);
}

RC_GTEST_PROP(TailProperty, GivesTheLastLines, ()) {
  ScratchDir dir;
  LogWriter log(dir / "a");
  std::string twin;
  const int actions = *rc::gen::inRange(1, 40);
  for (int i = 0; i < actions; ++i) {
    const auto text = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab\n")));
    const int what = *rc::gen::inRange(0, 6);
    if (what == 5) log.rotate();
    if (what == 4) log.bytes(text);
    if (what < 4) log.write(text, 1, *rc::gen::element(task::LogStream::out, task::LogStream::err));
    if (what < 5) twin += text;
  }
  const auto lines = *rc::gen::inRange<std::uint64_t>(0, 12);
  std::size_t begin = twin.size();
  std::uint64_t seen = 0;
  while (lines > 0 && begin > 0) {
    if (begin < twin.size() && twin[begin - 1] == '\n' && ++seen == lines) break;
    --begin;
  }
  RC_ASSERT(tail_of(dir / "a", lines) == twin.substr(begin));
}

}  // namespace
}  // namespace dtrain::proc
