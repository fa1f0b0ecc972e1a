#include "agent/store/committer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "agent/store/blob_store.h"
#include "agent/store/data_lock.h"
#include "agent/store/file.h"
#include "tests/unit/store/temp_dir.h"

namespace dtrain::store {
namespace {

constexpr int kPatienceMs = 10'000;

struct CollectedLog : Log {
  using Log::write;
  std::vector<std::string> events;
  void write(LogLevel, std::string_view event, std::span<const LogField>) override { events.emplace_back(event); }
};

::testing::AssertionResult serve(DiskWorker& worker, const std::function<bool()>& done) {
  for (int waited = 0; waited < kPatienceMs; ++waited) {
    if (done()) return ::testing::AssertionSuccess();
    pollfd wait{worker.fd(), POLLIN, 0};
    ::poll(&wait, 1, 1);
    worker.dispatch();
  }
  return ::testing::AssertionFailure() << "did not happen";
}

TEST(DiskWorker, CommitsGoFirstAndCompletionsComeInOrder) {
  auto worker = DiskWorker::start();
  ASSERT_TRUE(worker);
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  std::vector<int> done;
  const auto post = [&](Lane lane, int number) {
    return (*worker)->post(lane, [&, number] { return [&, number] { done.push_back(number); }; });
  };
  ASSERT_TRUE((*worker)->post(Lane::bulk, [opened] {
    opened.wait();
    return DiskWorker::Done();
  }));
  ASSERT_TRUE(post(Lane::bulk, 3));
  ASSERT_TRUE(post(Lane::bulk, 4));
  ASSERT_TRUE(post(Lane::commit, 1));
  ASSERT_TRUE(post(Lane::commit, 2));
  gate.set_value();
  ASSERT_TRUE(serve(**worker, [&] { return done.size() == 4; }));
  EXPECT_EQ(done, (std::vector<int>{1, 2, 3, 4}));
  ASSERT_TRUE(serve(**worker, [&] { return (*worker)->idle(); }));
}

// Without the right to a priority nothing changes, and nothing is shown.
TEST(DiskWorker, BulkWorkHasNoBetterPriorityThanUsersHave) {
  constexpr int kUrgent = -5;
  int bulk = kUrgent, commit = 0, after = 0;
  bool may = false;
  std::thread([&] {
    may = ::setpriority(PRIO_PROCESS, 0, kUrgent) == 0;  // of this thread, and of the worker that it starts
    auto worker = DiskWorker::start();
    if (!worker) return;
    const auto look = [&](Lane lane, int& seen) {
      return (*worker)->post(lane, [&seen] {
        seen = ::getpriority(PRIO_PROCESS, 0);
        return DiskWorker::Done();
      });
    };
    EXPECT_TRUE(look(Lane::bulk, bulk));
    EXPECT_TRUE(serve(**worker, [&] { return (*worker)->idle(); }));
    EXPECT_TRUE(look(Lane::commit, commit));
    EXPECT_TRUE(serve(**worker, [&] { return (*worker)->idle(); }));
    after = ::getpriority(PRIO_PROCESS, 0);
  }).join();
  EXPECT_GE(bulk, 0);
  EXPECT_EQ(commit, may ? kUrgent : after);
}

TEST(DiskWorker, AFullLaneRefuses) {
  auto worker = DiskWorker::start();
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  std::atomic<bool> began = false;
  ASSERT_TRUE((*worker)->post(Lane::bulk, [&began, opened] {
    began = true;
    opened.wait();
    return DiskWorker::Done();
  }));
  while (!began) std::this_thread::yield();
  std::size_t taken = 0;
  while (taken < 2 * kDiskQueue && (*worker)->post(Lane::bulk, [] { return DiskWorker::Done(); })) ++taken;
  EXPECT_EQ(taken, kDiskQueue);
  EXPECT_TRUE((*worker)->post(Lane::commit, [] { return DiskWorker::Done(); }));
  gate.set_value();
}

TEST(DiskWorker, FinishesCommitsAtTheEnd) {
  std::atomic<int> ran = 0;
  {
    auto worker = DiskWorker::start();
    for (int i = 0; i < 100; ++i)
      ASSERT_TRUE((*worker)->post(Lane::commit, [&ran] {
        ++ran;
        return DiskWorker::Done();
      }));
  }
  EXPECT_EQ(ran, 100);
}

TEST(Merge, IsTheSameAsOneAfterTheOther) {
  Transaction first, second;
  first.append = {{1, 1, "a"}, {2, 1, "b"}, {3, 1, "c"}};
  first.task_records = {{"x", "1"}, {"y", "1"}};
  second.truncate_from = 2;
  second.append = {{2, 2, "B"}};
  second.snapshot = raft::StoredSnapshot{1, 1, "s"};
  second.task_records = {{"x", std::nullopt}, {"z", "2"}};
  merge(first, std::move(second));
  ASSERT_EQ(first.append.size(), 1u);  // 1 is in the snapshot, 2 and 3 were cut off
  EXPECT_EQ(first.append[0].payload, "B");
  EXPECT_EQ(first.truncate_from, 2u);
  EXPECT_EQ(first.snapshot->index, 1u);
  EXPECT_EQ(first.task_records.at("x"), std::nullopt);
  EXPECT_EQ(first.task_records.at("y"), "1");
}

TEST(Merge, AForgottenLogIsNotWrittenFirst) {
  Transaction first, second;
  first.hard = raft::HardState{};
  first.snapshot = raft::StoredSnapshot{1, 1, "s"};
  first.reset_log = true;
  first.truncate_from = 1;
  first.append = {{1, 1, "a"}};
  first.task_records = {{"x", "1"}};
  first.formation = "old";
  second.forget_log = true;
  second.formation = "new";
  second.append = {{1, 2, "b"}};
  merge(first, std::move(second));
  EXPECT_TRUE(first.forget_log);
  EXPECT_FALSE(first.hard || first.snapshot || first.truncate_from || first.reset_log);
  ASSERT_EQ(first.append.size(), 1u);
  EXPECT_EQ(first.append.front().payload, "b");
  EXPECT_EQ(first.formation, "new");
  EXPECT_EQ(first.task_records.at("x"), "1");
}

struct Ring {
  TempDir own;
  std::string dir;
  std::unique_ptr<Store> store;
  std::unique_ptr<DiskWorker> worker;
  CollectedLog log;
  std::vector<std::uint64_t> done;
  std::vector<Error> errors;
  std::unique_ptr<Committer> committer;
  Now now;

  explicit Ring(const std::string& at = "", DiskReserve* reserve = nullptr) {
    dir = at.empty() ? own.path : at;
    store = std::move(*Store::open(dir, "1"));
    EXPECT_TRUE(store->begin_life("boot", "id"));
    worker = std::move(*DiskWorker::start());
    committer = std::make_unique<Committer>(
        *store, *worker, log,
        [this](std::uint64_t ticket, const Status& result) {
          done.push_back(ticket);
          if (!result) errors.push_back(result.error());
        },
        reserve);
  }
  ~Ring() { worker.reset(); }
  void append(std::uint64_t index, std::size_t bytes = 10) {
    node::Persist effect;
    effect.ticket = index;
    effect.append.push_back({index, 1, std::string(bytes, 'p')});
    committer->add(std::move(effect));
  }
  ::testing::AssertionResult settle(const std::function<bool()>& reached) {
    return serve(*worker, [&] {
      committer->flush(now);
      return reached();
    });
  }
};

TEST(Committer, KeepsOrderAndEverything) {
  Ring ring;
  constexpr std::uint64_t kCount = 500;
  for (std::uint64_t i = 1; i <= kCount; ++i) {
    ring.append(i);
    if (i % 7 == 0) ring.committer->flush(ring.now);
  }
  ASSERT_TRUE(ring.settle([&] { return ring.done.size() == kCount; }));
  EXPECT_TRUE(std::is_sorted(ring.done.begin(), ring.done.end()));
  EXPECT_TRUE(ring.errors.empty());
  EXPECT_TRUE(ring.committer->idle());
  ring.committer.reset();
  ring.worker.reset();
  ring.store.reset();
  auto again = Store::open(ring.dir, "1");
  EXPECT_EQ((*again)->begin_life("b", "n")->replica.log.size(), kCount);
}

void fill(const std::string& path) {
  std::ofstream file(path);
  while (file.write(std::string(4096, 'f').data(), 4096).flush()) {
  }
}

TEST(Committer, AFullDiskGivesWhatWasKeptForTheLedger) {
  const SmallDisk disk("256m");
  if (!disk.mounted()) return;
  DiskReserve reserve(disk.path() + "/reserve");
  ASSERT_EQ(reserve.bytes(), 8u << 20) << "one part in 32";
  Ring ring(disk.path(), &reserve);
  fill(disk.path() + "/filler");
  for (std::uint64_t i = 1; i <= 20; ++i) ring.append(i, 200'000);  // more than the write-ahead log holds
  ASSERT_TRUE(ring.settle([&] { return ring.done.size() == 20; }));
  EXPECT_TRUE(ring.errors.empty());
  EXPECT_TRUE(ring.log.events.empty()) << "nobody had to wait";
  EXPECT_LT(reserve.bytes(), 8u << 20);
  // Once there is plenty of room again, it is kept again.
  std::filesystem::remove(disk.path() + "/filler");
  ring.append(21);
  ASSERT_TRUE(ring.settle([&] { return ring.done.size() == 21; }));
  EXPECT_EQ(reserve.bytes(), 8u << 20);
}

TEST(Committer, AFullDiskWaitsAndGoesOn) {
  const SmallDisk disk("16m");
  if (!disk.mounted()) return;  // the error's classification is the same code
  Ring ring(disk.path());
  const std::string filler = disk.path() + "/filler";
  fill(filler);
  for (std::uint64_t i = 1; i <= 20; ++i) ring.append(i, 200'000);  // more than the write-ahead log holds
  ASSERT_TRUE(ring.settle([&] { return ring.committer->disk_full(); }));
  EXPECT_TRUE(ring.done.empty());
  EXPECT_EQ(ring.log.events, std::vector<std::string>{"disk.full"});
  const Instant retry = ring.committer->deadline();
  EXPECT_EQ(retry, ring.now.boot + kFullRetry);
  // More arrives meanwhile; a retry that fails is not logged again within the minute.
  ring.append(21);
  ring.now.boot = retry;
  ASSERT_TRUE(ring.settle([&] { return ring.committer->deadline() == retry + kFullRetry; }));
  EXPECT_EQ(ring.log.events.size(), 1u);
  std::filesystem::remove(filler);
  ring.now.boot += kFullRetry;
  ASSERT_TRUE(ring.settle([&] { return ring.done.size() == 21; }));
  EXPECT_TRUE(ring.errors.empty());
  EXPECT_FALSE(ring.committer->disk_full());
  EXPECT_EQ(ring.log.events.back(), "disk.space");
  ring.committer.reset();
  ring.worker.reset();
  ring.store.reset();
  EXPECT_EQ((*Store::open(ring.dir, "1"))->begin_life("b", "n")->replica.log.size(), 21u);
}

TEST(Committer, AnyOtherErrorIsFinal) {
  Ring ring;
  // Index 1 twice in one transaction is a defect that SQLite refuses: stands for every error but a full disk.
  node::Persist effect;
  effect.ticket = 1;
  effect.append = {{1, 1, "a"}, {1, 1, "b"}};
  ring.committer->add(std::move(effect));
  ring.committer->flush(ring.now);
  ring.append(2);
  ASSERT_TRUE(ring.settle([&] { return ring.done.size() == 2; }));
  EXPECT_EQ(ring.errors.size(), 2u);
  ring.append(3);
  EXPECT_EQ(ring.errors.size(), 3u);
}

// ---------------------------------------------------------------- blobs

constexpr const char* kHelloDigest = "324dcf027dd4a30a932c441f365a25e86b173defa4b8e58948253471b81b72cf";  // of "hello"

// Each is a request of its own.
node::WriteBlob chunk(std::uint64_t offset, std::string bytes, bool last, std::string digest = kHelloDigest) {
  static std::uint64_t request = 0;
  return {1, ++request, offset, std::move(bytes), last, std::move(digest)};
}

TEST(BlobStore, StoresInChunksUnderTheDigest) {
  TempDir dir;
  auto blobs = BlobStore::open(dir.path + "/blobs", {0, 0});
  ASSERT_TRUE(blobs);
  EXPECT_FALSE(*(*blobs)->has(kHelloDigest));
  EXPECT_FALSE((*blobs)->write(chunk(0, "hel", false)));
  EXPECT_FALSE(*(*blobs)->has(kHelloDigest));
  const auto answer = (*blobs)->write(chunk(3, "lo", true));
  ASSERT_TRUE(answer && *answer) << (*answer).error().text();
  EXPECT_EQ(**answer, kHelloDigest);
  EXPECT_TRUE(*(*blobs)->has(kHelloDigest));
  EXPECT_EQ(*read_file((*blobs)->path_of(kHelloDigest), 100), "hello");
}

std::size_t files_in(const std::string& dir) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(dir), {}));
}

TEST(BlobStore, AnswersTheFirstFailureAtOnceAndAtTheEndAndLeavesNothing) {
  TempDir dir;
  auto blobs = std::move(*BlobStore::open(dir.path, {0, 0}));
  EXPECT_FALSE(blobs->write(chunk(0, "hel", false)));
  auto answer = blobs->write(chunk(7, "lo", false));  // a gap
  ASSERT_TRUE(answer);
  EXPECT_FALSE(*answer);
  EXPECT_FALSE(blobs->write(chunk(9, "x", false)));
  answer = blobs->write(chunk(10, "x", true));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error().message, "could not store the package: its chunks do not follow one another");
  EXPECT_EQ(files_in(dir.path), 0u);
  answer = blobs->write(chunk(0, "hallo", true));  // another content
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error().code, ErrorCode::damaged);
  EXPECT_EQ(files_in(dir.path), 0u);
  for (const char* digest : {"", "../../etc/passwd", "ABC"}) {
    answer = blobs->write(chunk(0, "hello", true, digest));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->error().code, ErrorCode::invalid);
    EXPECT_FALSE(blobs->has(digest));
  }
}

TEST(BlobStore, UnfinishedUploadsGoWithTheirConnectionOrTheNextStart) {
  TempDir dir;
  auto blobs = std::move(*BlobStore::open(dir.path, {0, 0}));
  EXPECT_FALSE(blobs->write(chunk(0, "hel", false)));
  EXPECT_EQ(files_in(dir.path), 1u);
  blobs->drop(1);
  EXPECT_EQ(files_in(dir.path), 0u);
  std::ofstream(dir.path + "/.upload-9-9") << "left by a killed agent";
  blobs = std::move(*BlobStore::open(dir.path, {0, 0}));
  EXPECT_EQ(files_in(dir.path), 0u);
}

TEST(BlobStore, TheLongestUnusedGoWhenTheCacheIsFull) {
  TempDir dir;
  // Two old blobs and a young one, by their names alone: what they hold does not matter here.
  const auto put = [&](char digit, int age_s) {
    const std::string path = dir.path + "/" + std::string(kDigestHexBytes, digit);
    std::ofstream(path) << std::string(1000, 'x');
    const timespec times[2] = {{0, UTIME_OMIT}, {::time(nullptr) - age_s, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  };
  put('a', 9000);
  put('b', 8000);
  put('c', 10);
  auto blobs = std::move(*BlobStore::open(dir.path, {0, 0}, 2500));
  ASSERT_TRUE(blobs->write(chunk(0, "hello", true))->has_value());
  EXPECT_FALSE(*blobs->has(std::string(kDigestHexBytes, 'a')));
  EXPECT_TRUE(*blobs->has(std::string(kDigestHexBytes, 'b')));
  EXPECT_TRUE(*blobs->has(std::string(kDigestHexBytes, 'c')));
  EXPECT_TRUE(*blobs->has(kHelloDigest));
}

TEST(BlobStore, KeepsTheReserveFree) {
  TempDir dir;
  auto blobs = std::move(*BlobStore::open(dir.path, {0, 1ull << 60}));
  const auto answer = blobs->write(chunk(0, "hello", true));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error().code, ErrorCode::limit);
}

TEST(BlobStore, LimitsUploadsAtOnce) {
  TempDir dir;
  auto blobs = std::move(*BlobStore::open(dir.path, {0, 0}));
  for (std::uint64_t i = 0; i < kUploads; ++i) ASSERT_FALSE(blobs->write({i + 1, 1, 0, "h", false, kHelloDigest}));
  const auto answer = blobs->write({kUploads + 1, 1, 0, "h", false, kHelloDigest});
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->error().code, ErrorCode::limit);
}

TEST(DataLock, OnlyOneHolds) {
  TempDir dir;
  {
    auto first = DataLock::take(dir.path);
    ASSERT_TRUE(first);
    const auto second = DataLock::take(dir.path);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::unavailable);
    EXPECT_NE(second.error().message.find("pid " + std::to_string(::getpid())), std::string::npos);
  }
  EXPECT_TRUE(DataLock::take(dir.path));
}

TEST(File, AtomicWriteReplacesWholeAndLeavesNoTemporary) {
  TempDir dir;
  const std::string path = dir.path + "/f";
  ASSERT_TRUE(write_file_atomically(path, "one", 0600));
  ASSERT_TRUE(write_file_atomically(path, "two", 0600));
  EXPECT_EQ(*read_file(path, 10), "two");
  EXPECT_EQ(files_in(dir.path), 1u);
  EXPECT_EQ(read_file(path, 2).error().code, ErrorCode::limit);
  EXPECT_EQ(read_file(dir.path + "/none", 2).error().code, ErrorCode::not_found);
  EXPECT_FALSE(write_file_atomically(dir.path + "/none/f", "x", 0600));
}

}  // namespace
}  // namespace dtrain::store
