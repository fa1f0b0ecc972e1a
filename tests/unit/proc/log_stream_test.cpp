#include "agent/proc/log_streams.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/proc/log_files.h"
#include "tests/unit/proc/outlets.h"

namespace dtrain::proc {
namespace {

using testing::KeepingOutlet;
using testing::LogWriter;
using testing::ScratchDir;

AssignmentId worker(std::uint32_t index, Generation generation = 1) { return {17, generation, TaskId{"worker", index}}; }

struct Reader {
  explicit Reader(const std::string& tasks_dir) : streams(std::move(*LogStreams::open(tasks_dir))) {}

  void open(const wire::LogsRequest& query, std::vector<AssignmentId> sources, bool ended = false) {
    node::OpenLog effect;
    effect.connection = 7;
    effect.request = 3;
    effect.query = wire::encode(query);
    effect.sources = std::move(sources);
    effect.ended = ended;
    streams.open(effect);
    settle();
  }
  void update(std::vector<AssignmentId> sources, bool ended) {
    streams.update({7, 3, std::move(sources), ended});
    settle();
  }
  bool ready() const {
    pollfd descriptor{streams.fd(), POLLIN, 0};
    return ::poll(&descriptor, 1, 0) == 1;
  }
  // inotify tells at once what happened before: until nothing is left to do, everything is sent.
  void settle() {
    while (ready()) streams.dispatch(outlet);
  }
  std::vector<wire::LogChunk> chunks() const {
    std::vector<wire::LogChunk> all;
    for (const auto& [connection, message] : outlet.messages)
      if (message.type == wire::MessageType::log_chunk) all.push_back(*wire::decode<wire::LogChunk>(message.payload));
    return all;
  }
  std::string text() const {
    std::string all;
    for (const auto& chunk : chunks()) all += chunk.bytes;
    return all;
  }
  std::vector<std::string> notes() const {
    std::vector<std::string> all;
    for (const auto& chunk : chunks())
      if (!chunk.note.empty()) all.push_back(chunk.note);
    return all;
  }
  bool over() const { return !outlet.messages.empty() && outlet.messages.back().second.last; }
  std::string error() const {
    if (!over() || outlet.messages.back().second.type != wire::MessageType::error) return "";
    return wire::decode<wire::ErrorReply>(outlet.messages.back().second.payload)->errors.front().message;
  }

  LogStreams streams;
  KeepingOutlet outlet;
};

wire::LogsRequest of_task(const std::string& task = "worker-1") {
  wire::LogsRequest query;
  query.job = "digits";
  query.task = task;
  return query;
}

class LogStreamTest : public ::testing::Test {
 protected:
  LogWriter writer(const AssignmentId& id) const { return LogWriter(dir_ / id.text()); }
  std::string read(const wire::LogsRequest& query, std::vector<AssignmentId> sources) {
    Reader reader(dir_.path());
    reader.open(query, std::move(sources));
    EXPECT_TRUE(reader.over());
    EXPECT_EQ(reader.streams.size(), 0u);
    return reader.error().empty() ? reader.text() : reader.error();
  }

  ScratchDir dir_;
};

TEST_F(LogStreamTest, LinesOfRanksStayWholeAndOneRankCanBeAskedFor) {
  LogWriter log = writer(worker(1));
  log.write("half of 0, ", 1, task::LogStream::out, 1000, 1);
  log.write("half of 1, ", 1, task::LogStream::out, 1000, 2);
  log.write("rest\n", 1, task::LogStream::out, 1001, 1);
  log.write("rest", 1, task::LogStream::out, 1002, 2);
  Reader reader(dir_.path());
  reader.open(of_task(), {worker(1)});
  std::vector<std::pair<std::uint32_t, std::string>> lines;
  for (const wire::LogChunk& chunk : reader.chunks())
    if (!chunk.bytes.empty()) lines.emplace_back(chunk.rank, chunk.bytes);
  EXPECT_EQ(lines, (std::vector<std::pair<std::uint32_t, std::string>>{{1, "half of 0, rest\n"}, {2, "half of 1, rest"}}));
  auto query = of_task();
  query.rank = 2;
  EXPECT_EQ(read(query, {worker(1)}), "half of 1, rest");
  query.tail = 1;
  EXPECT_EQ(read(query, {worker(1)}), "half of 1, rest");
  query.rank = 3;
  EXPECT_EQ(read(query, {worker(1)}), "");
}

TEST_F(LogStreamTest, UnfinishedLinesOfManyRanksAreBounded) {
  LogWriter log = writer(worker(1));
  constexpr std::uint16_t kRanks = 256;
  const std::string line(kPartialLineBytes - 1, 'x');
  for (std::uint16_t rank = 1; rank <= kRanks; ++rank) log.write(line, 1, task::LogStream::out, 1000 + rank, rank);
  Reader reader(dir_.path());
  auto query = of_task();
  query.follow = true;
  reader.open(query, {worker(1)});
  EXPECT_GE(reader.text().size(), kRanks * line.size() - kPartialBytesOfStream - line.size()) << "more than that is kept";
  reader.update({worker(1)}, true);
  EXPECT_EQ(reader.text().size(), kRanks * line.size());
}

TEST_F(LogStreamTest, OneTaskLatestAttemptUnchanged) {
  LogWriter log = writer(worker(1));
  log.write("old\n", 1);
  log.write("out ", 2);
  log.write("err ", 2, task::LogStream::err);
  log.write("no line end", 2);
  EXPECT_EQ(read(of_task(), {worker(1)}), "out err no line end");
  auto query = of_task();
  query.stderr_only = true;
  EXPECT_EQ(read(query, {worker(1)}), "err ");
}

TEST_F(LogStreamTest, AttemptsOverGenerations) {
  writer(worker(1, 1)).write("one\n", 1);
  LogWriter second = writer(worker(1, 2));
  second.write("two\n", 2);
  second.write("three\n", 3);
  const std::vector<AssignmentId> sources = {worker(1, 1), worker(1, 2), worker(1, 3)};  // the last has no log yet
  auto query = of_task();
  EXPECT_EQ(read(query, sources), "three\n");
  query.all_attempts = true;
  EXPECT_EQ(read(query, sources), "one\ntwo\nthree\n");
  query = of_task();
  query.attempt = 1;
  EXPECT_EQ(read(query, sources), "one\n");
  query.attempt = 4;
  EXPECT_EQ(read(query, sources), "could not read attempt 4 of worker-1: there is no output of it");
  query = of_task();
  query.previous = true;
  EXPECT_EQ(read(query, sources), "two\n");
  EXPECT_EQ(read(query, {worker(1, 1)}), "could not read the previous attempt of worker-1: it has had no more than one with output");
}

// Of a job that was begun anew a hundred times the newest generations alone are named.
TEST_F(LogStreamTest, GenerationsThatAreNotNamedAreReadWhereTheyAre) {
  writer(worker(1, 3)).write("three\n", 3);
  writer(worker(2, 3)).write("another's\n", 3);
  writer({18, 3, TaskId{"worker", 1}}).write("of another job\n", 3);
  writer(worker(1, 70)).write("seventy\n", 70);
  auto query = of_task();
  query.all_attempts = true;
  EXPECT_EQ(read(query, {worker(1, 69), worker(1, 70)}), "three\nseventy\n");
  query.all_attempts = false;
  EXPECT_EQ(read(query, {worker(1, 69), worker(1, 70)}), "seventy\n");
  query.task.clear();
  query.all_attempts = true;
  EXPECT_EQ(read(query, {worker(1, 69), worker(1, 70)}), "three\nseventy\nanother's\n");
}

TEST_F(LogStreamTest, NoLogsAreEmptyOnes) {
  EXPECT_EQ(read(of_task(), {worker(1)}), "");
  EXPECT_EQ(read(of_task(), {}), "");
  EXPECT_EQ(read(of_task(""), {}), "");
}

TEST_F(LogStreamTest, TailAndSince) {
  writer(worker(1, 1)).write("0\n", 1, task::LogStream::out, 500);
  LogWriter log = writer(worker(1, 2));
  log.write("1\n2\n", 2, task::LogStream::out, 1000);
  log.rotate();
  log.write("3\n", 2, task::LogStream::out, 2000);
  log.write("4\n", 2, task::LogStream::err, 3000);
  auto query = of_task();
  query.tail = 2;
  EXPECT_EQ(read(query, {worker(1, 1), worker(1, 2)}), "3\n4\n");
  query.tail = 0;
  EXPECT_EQ(read(query, {worker(1, 1), worker(1, 2)}), "");
  query.tail = 100;
  EXPECT_EQ(read(query, {worker(1, 1), worker(1, 2)}), "1\n2\n3\n4\n");
  query.all_attempts = true;
  query.tail = 4;
  EXPECT_EQ(read(query, {worker(1, 1), worker(1, 2)}), "1\n2\n3\n4\n");
  query.tail = 5;
  EXPECT_EQ(read(query, {worker(1, 1), worker(1, 2)}), "0\n1\n2\n3\n4\n");
  query = of_task();
  query.since_ms = 2000;
  EXPECT_EQ(read(query, {worker(1, 1), worker(1, 2)}), "3\n4\n");
}

TEST_F(LogStreamTest, WholeJobIsMergedByTimeAndCutAtLineEnds) {
  LogWriter one = writer(worker(1));
  LogWriter two = writer(worker(2));
  one.write("a1\na", 1, task::LogStream::out, 1000);
  two.write("b1\n", 1, task::LogStream::out, 2000);
  one.write("2\n", 1, task::LogStream::out, 3000);
  one.write("part", 1, task::LogStream::err, 3500);
  two.write("b2\n", 1, task::LogStream::out, 4000);
  Reader reader(dir_.path());
  reader.open(of_task(""), {worker(1), worker(2)});
  ASSERT_TRUE(reader.over());
  EXPECT_EQ(reader.text(), "a1\nb1\na2\npartb2\n");
  for (const auto& chunk : reader.chunks()) {
    if (chunk.bytes.empty() || chunk.is_stderr) continue;
    EXPECT_TRUE(chunk.bytes.ends_with('\n')) << chunk.bytes;
  }
}

TEST_F(LogStreamTest, AFollowedProgressBarIsSentAsItGrows) {
  LogWriter log = writer(worker(0));
  auto query = of_task("");
  query.follow = true;
  Reader reader(dir_.path());
  reader.open(query, {worker(0)});
  const auto sent = [&](const std::string& bytes) {
    const std::size_t before = reader.chunks().size();
    log.write(bytes, 1);
    reader.settle();
    std::string all;
    for (std::size_t i = before; i < reader.chunks().size(); ++i)
      all += reader.chunks()[i].bytes + (reader.chunks()[i].open ? "|open" : "|");
    return all;
  };
  EXPECT_EQ(sent("loss "), "") << "it may go on to be a line";
  EXPECT_EQ(sent("3\n\rEpoch 1:  0%"), "loss 3\n\rEpoch 1:  0%|open");
  EXPECT_EQ(sent("\rEpoch 1: 50%"), "\rEpoch 1: 50%|open");
  EXPECT_EQ(sent(" of it"), " of it|open");
  EXPECT_EQ(sent(" done\nnext"), " done\n|");
  EXPECT_EQ(sent("\r1%"), "next\r1%|open");
  reader.update({worker(0)}, true);
  EXPECT_TRUE(reader.over());
  const auto chunks = reader.chunks();
  EXPECT_TRUE(std::ranges::any_of(chunks, [](const auto& c) { return c.task == "worker-0" && c.bytes.empty() && !c.open; }))
      << "that it goes on no more is said, too";
  EXPECT_EQ(reader.text(), "loss 3\n\rEpoch 1:  0%\rEpoch 1: 50% of it done\nnext\r1%");
}

TEST_F(LogStreamTest, ALineWithoutEndIsBounded) {
  LogWriter log = writer(worker(1));
  const std::string line(500'000, 'x');
  for (std::size_t at = 0; at < line.size(); at += 5'000)
    log.write(line.substr(at, 5'000), 1, task::LogStream::out, static_cast<std::int64_t>(at));
  Reader reader(dir_.path());
  reader.open(of_task(""), {worker(1)});
  EXPECT_EQ(reader.text(), line);
  for (const auto& chunk : reader.chunks()) EXPECT_LE(chunk.bytes.size(), kStreamChunkBytes + kPartialLineBytes);
  EXPECT_GT(reader.chunks().size(), 500'000u / (kStreamChunkBytes + kPartialLineBytes));
}

TEST_F(LogStreamTest, FollowsAttemptsGenerationsAndRotationToTheEnd) {
  LogWriter first = writer(worker(1, 1));
  first.write("1a\n", 1);
  Reader reader(dir_.path());
  auto query = of_task();
  query.follow = true;
  reader.open(query, {worker(1, 1)});
  EXPECT_EQ(reader.text(), "1a\n");
  EXPECT_FALSE(reader.ready()) << "nothing happens, nothing wakes up";

  first.write("1b\n", 1);
  reader.settle();
  EXPECT_EQ(reader.text(), "1a\n1b\n");
  first.rotate();
  first.write("2a\n", 2);
  reader.settle();
  EXPECT_EQ(reader.notes(), std::vector<std::string>{"worker-1: attempt 2 begins"});

  reader.update({worker(1, 2)}, false);  // its directory does not exist yet
  first.write("late\n", 2);
  reader.settle();
  LogWriter second = writer(worker(1, 2));
  reader.settle();
  second.write("3a\n", 3);
  reader.settle();
  EXPECT_EQ(reader.text(), "1a\n1b\n2a\nlate\n3a\n");
  ASSERT_EQ(reader.notes().size(), 2u);
  EXPECT_EQ(reader.notes().back(), "worker-1: attempt 3 begins (generation 2)");
  EXPECT_FALSE(reader.over());

  second.bytes("tail");
  reader.settle();
  EXPECT_EQ(reader.text(), "1a\n1b\n2a\nlate\n3a\n") << "its record may be about to come";
  reader.update({}, true);
  EXPECT_EQ(reader.text(), "1a\n1b\n2a\nlate\n3a\ntail");
  EXPECT_TRUE(reader.over());
  EXPECT_EQ(reader.streams.size(), 0u);
}

TEST_F(LogStreamTest, FollowedAttemptEndsWithTheNext) {
  LogWriter log = writer(worker(1));
  log.write("1\n", 1);
  Reader reader(dir_.path());
  auto query = of_task();
  query.follow = true;
  query.attempt = 1;
  reader.open(query, {worker(1)});
  EXPECT_FALSE(reader.over());
  log.write("2\n", 2);
  reader.settle();
  EXPECT_TRUE(reader.over());
  EXPECT_EQ(reader.text(), "1\n");
}

TEST_F(LogStreamTest, FollowingFromTheEnd) {
  LogWriter log = writer(worker(1));
  log.write("old\n", 1);
  Reader reader(dir_.path());
  auto query = of_task();
  query.follow = true;
  query.tail = 0;
  reader.open(query, {worker(1)});
  log.write("new\n", 1);
  reader.settle();
  EXPECT_EQ(reader.text(), "new\n");
}

TEST_F(LogStreamTest, TasksOfAFollowedJobMayComeLater) {
  Reader reader(dir_.path());
  auto query = of_task("");
  query.follow = true;
  reader.open(query, {});
  EXPECT_FALSE(reader.over());
  writer(worker(1)).write("a\n", 1);
  reader.update({worker(1), worker(2)}, false);
  writer(worker(2)).write("b\n", 1);
  reader.settle();
  EXPECT_EQ(reader.text(), "a\nb\n");
  reader.update({worker(1), worker(2)}, true);
  EXPECT_TRUE(reader.over());
}

TEST_F(LogStreamTest, SendsNoMoreThanThereIsRoomFor) {
  LogWriter log = writer(worker(1));
  const std::string block(300'000, 'x');
  log.write(block, 1);
  Reader reader(dir_.path());
  reader.outlet.set_room(0);
  reader.outlet.takes_one_at_a_time = true;
  reader.open(of_task(), {worker(1)});
  EXPECT_TRUE(reader.outlet.messages.empty());
  EXPECT_FALSE(reader.ready()) << "without room there is no work";
  std::size_t messages = 0;
  while (!reader.over()) {
    reader.outlet.set_room(kStreamMessageBytes);
    reader.streams.wake(7);
    reader.settle();
    ASSERT_EQ(reader.outlet.messages.size(), ++messages) << "one for each time of room";
    EXPECT_LE(wire::frame(reader.outlet.messages.back().second).size(), kStreamMessageBytes);
  }
  EXPECT_EQ(reader.text(), block);
}

TEST_F(LogStreamTest, ClosedStreamsSayNothing) {
  LogWriter log = writer(worker(1));
  Reader reader(dir_.path());
  auto query = of_task();
  query.follow = true;
  reader.open(query, {worker(1)});
  reader.streams.close(7);
  log.write("x\n", 1);
  reader.settle();
  EXPECT_TRUE(reader.outlet.messages.empty());
  EXPECT_EQ(reader.streams.size(), 0u);
}

TEST_F(LogStreamTest, AJunkQueryIsAnError) {
  Reader reader(dir_.path());
  node::OpenLog effect;
  effect.connection = 7;
  effect.request = 3;
  effect.query = "\xff\xff";
  reader.streams.open(effect);
  reader.settle();
  EXPECT_FALSE(reader.error().empty());
}

// ---- property: a follower gets what was written, in order, whatever is written, rotated and removed between
// its turns.

RC_GTEST_PROP(LogStreamProperty, AFollowerGetsEachByteOnce, ()) {
  ScratchDir dir;
  std::vector<AssignmentId> sources = {worker(1, 1)};
  Generation generation = 1;
  std::uint32_t attempt = 1;
  LogWriter log(dir / worker(1, 1).text());
  Reader reader(dir.path());
  auto query = of_task();
  query.follow = true;
  query.all_attempts = true;
  reader.open(query, sources);
  std::string twin;
  const int actions = *rc::gen::inRange(1, 40);
  for (int i = 0; i < actions; ++i) {
    const auto text = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab\n")));
    switch (*rc::gen::inRange(0, 9)) {
      case 0:
      case 1:
      case 2:
        log.write(text, attempt, *rc::gen::element(task::LogStream::out, task::LogStream::err));
        twin += text;
        break;
      case 3:
        log.bytes(text);
        twin += text;
        break;
      case 4: log.rotate(); break;
      case 5: reader.settle(); break;
      case 6:  // an old file goes: the reader has it behind it, or open
        reader.settle();
        if (log.number() > 0) log.remove(log.number() - 1);
        break;
      case 7: ++attempt; break;
      case 8:
        ++generation;
        ++attempt;
        reader.streams.update({7, 3, {worker(1, generation)}, false});
        log = LogWriter(dir / worker(1, generation).text());
        break;
    }
  }
  reader.update({}, true);
  RC_ASSERT(reader.over());
  RC_ASSERT(reader.error() == "");
  RC_ASSERT(reader.text() == twin);
}

}  // namespace
}  // namespace dtrain::proc
