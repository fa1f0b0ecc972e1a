#include "agent/store/checkpoint_store.h"
#include "agent/store/checkpoint_verify_queue.h"

#include <poll.h>
#include <unistd.h>

#include <ctime>
#include <deque>

#include "tests/unit/store/checkpoint_world.h"

namespace dtrain::test {
namespace {

using namespace node;

class QuietLog : public Log {
 public:
  void write(LogLevel, std::string_view event, std::span<const LogField>) override { events.emplace_back(event); }
  std::vector<std::string> events;
};

// A disk worker that works when the test says so; time is the test's own.
class CheckpointStoreTest : public CheckpointWorld {
 protected:
  CheckpointStoreTest() { make({}); }
  void make(store::CheckpointStoreOptions options) {
    store_ = std::make_unique<store::CheckpointStore>(
        [this](auto work, auto done) {
          jobs_.push_back({std::move(work), std::move(done)});
        },
        log_, options);
  }

  struct Job {
    std::function<void()> work, done;
  };
  bool run_one() {
    if (jobs_.empty()) return false;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    job.work();
    job.done();
    return true;
  }
  void dispatch() {
    store_->dispatch(now_, [this](Event event) { events_.push_back(std::move(event)); });
  }
  // Lets time pass from deadline to deadline until nothing is left to do before `until`.
  void run_until(Instant until) {
    for (;;) {
      dispatch();
      while (run_one()) dispatch();
      const Instant next = store_->deadline();
      if (next > until) break;
      now_ = std::max(now_, next);
    }
    now_ = std::max(now_, until);
  }
  void settle() { run_until(now_ + 2s); }

  // What the last unasked report said; fails when there was none.
  const std::vector<transfer::CheckpointInfo>& reported() {
    static const std::vector<transfer::CheckpointInfo> kNone;
    for (auto event = events_.rbegin(); event != events_.rend(); ++event) {
      const auto* scanned = std::get_if<CheckpointsScanned>(&*event);
      if (scanned != nullptr && scanned->token == 0 && scanned->found) return *scanned->found;
    }
    ADD_FAILURE() << "nothing was reported";
    return kNone;
  }
  template <class E>
  std::vector<E> take() {
    std::vector<E> taken;
    for (const auto& event : events_)
      if (const auto* e = std::get_if<E>(&event)) taken.push_back(*e);
    events_.clear();
    return taken;
  }

  QuietLog log_;
  std::deque<Job> jobs_;
  Instant now_{1h};
  std::vector<Event> events_;
  task::User user_{"root", 0};
  std::unique_ptr<store::CheckpointStore> store_;
};

TEST_F(CheckpointStoreTest, ReportsWhatIsThereAndWhatIsAdded) {
  store_->watch({1, spec_, user_, true});
  settle();
  EXPECT_TRUE(events_.empty());
  manifest_checkpoint(1);
  settle();
  ASSERT_EQ(reported().size(), 1u);
  EXPECT_TRUE(reported()[0].complete);
  events_.clear();
  settle();
  EXPECT_TRUE(events_.empty());
  bundle_checkpoint(2);
  settle();
  ASSERT_EQ(reported().size(), 2u);
  EXPECT_EQ(reported()[0].step, 2);
}

TEST_F(CheckpointStoreTest, ManifestRenamedIntoAKnownDirectoryIsSeen) {
  write(dir_ + "/step-1/w", "w");
  store_->watch({1, spec_, user_, true});
  settle();
  EXPECT_TRUE(events_.empty());
  write(dir_ + "/step-1/MANIFEST.json.tmp", manifest_of(1, {{"w", "w"}}));
  std::filesystem::rename(dir_ + "/step-1/MANIFEST.json.tmp", dir_ + "/step-1/MANIFEST.json");
  settle();
  ASSERT_EQ(reported().size(), 1u);
}

TEST_F(CheckpointStoreTest, DirectoryThatComesLaterIsAwaited) {
  spec_.dir = root_ + "/a/b/c";
  store_->watch({1, spec_, user_, true});
  settle();
  std::filesystem::create_directories(root_ + "/a/b");
  settle();
  write_manifest_checkpoint(spec_.dir + "/step-4", 4, {{"w", "w"}});
  settle();
  ASSERT_EQ(reported().size(), 1u);
  EXPECT_EQ(reported()[0].step, 4);
  EXPECT_TRUE(log_.events.empty());
}

TEST_F(CheckpointStoreTest, FirstLookRemovesWhatAnEarlierLifeDidNotFinish) {
  store::CheckpointStoreOptions options;
  options.copies = {"h1", 2};
  make(options);
  const auto left = [&](std::uint64_t life) { return dir_ + "/" + store::temporary_name({"h1", life}, 7); };
  for (const std::uint64_t life : {1u, 2u}) write(left(life) + "/w.bin", "part");
  store_->watch({1, spec_, user_, true});
  settle();
  EXPECT_FALSE(exists(left(1)));
  EXPECT_TRUE(exists(left(2))) << "it is being written";
  EXPECT_TRUE(events_.empty());

  // Where the directory is the prefix of a bundle they lie beside it.
  write(left(1) + "/w.bin", "part");
  spec_.dir = dir_ + "/model";
  store_->watch({2, spec_, user_, true});
  settle();
  EXPECT_FALSE(exists(left(1)));
}

TEST_F(CheckpointStoreTest, ABurstOfWritesIsOneLook) {
  store_->watch({1, spec_, user_, true});
  settle();
  for (int i = 0; i < 50; ++i) {
    write(dir_ + "/step-1.tmp/" + std::to_string(i), "x");
    now_ += 1ms;
    dispatch();
  }
  EXPECT_TRUE(jobs_.empty());
  now_ += 1s;
  dispatch();
  EXPECT_EQ(jobs_.size(), 1u);
}

TEST_F(CheckpointStoreTest, WhatKeepsChangingIsNotReportedAsComplete) {
  store_->watch({1, spec_, user_, true});
  settle();
  for (int i = 0; i < 12; ++i) {
    write_manifest_checkpoint(dir_ + "/step-1", 1, {{"w", std::string(static_cast<std::size_t>(i), 'w')}});
    run_until(now_ + 100ms);
  }
  for (const auto& event : take<CheckpointsScanned>()) {
    ASSERT_TRUE(event.found);
    for (const auto& info : *event.found) EXPECT_FALSE(info.complete);
  }
  settle();
  ASSERT_EQ(reported().size(), 1u);
  EXPECT_TRUE(reported()[0].complete);
}

TEST_F(CheckpointStoreTest, TwoJobsMayShareADirectory) {
  store_->watch({1, spec_, user_, true});
  store_->watch({2, spec_, user_, true});
  settle();
  manifest_checkpoint(1);
  settle();
  EXPECT_EQ(take<CheckpointsScanned>().size(), 2u);
  store_->watch({1, {}, user_, false});
  manifest_checkpoint(2);
  settle();
  const auto events = take<CheckpointsScanned>();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].job, 2u);
}

TEST_F(CheckpointStoreTest, FilesInNoKnownFormatAreSaidOnceAndNotAtOnce) {
  store_->watch({1, spec_, user_, true});
  write(dir_ + "/epoch_1.pt", "x");
  write(dir_ + "/run/epoch_2.pt", "x");
  write(dir_ + "/notes.txt", "x");
  const auto said = [&] {
    std::vector<std::string> all;
    for (const auto& event : take<CheckpointsScanned>())
      if (!event.unrecognised.empty()) all.push_back(event.unrecognised);
    return all;
  };
  run_until(now_ + 20s);
  EXPECT_TRUE(said().empty()) << "what they are a part of may be being written";
  run_until(now_ + 20s);
  const auto first = said();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(first[0].starts_with("2 files such as epoch_1.pt in " + dir_)) << first[0];
  EXPECT_NE(first[0].find("MANIFEST.json"), std::string::npos);
  write(dir_ + "/epoch_3.pt", "x");
  run_until(now_ + 60s);
  EXPECT_TRUE(said().empty());
}

// Before tasks begin nobody writes there: it is known at once.
TEST_F(CheckpointStoreTest, ScanSaysWhatAFirstSaveMayHaveLeft) {
  write(dir_ + "/checkpoint-5/model.safetensors", "cut");
  write(dir_ + "/epoch_1.pt", "x");
  store_->scan({1, 7, spec_, user_});
  run_until(now_ + 1s);
  const auto events = take<CheckpointsScanned>();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].token, 7u);
  EXPECT_TRUE(events[0].unrecognised.starts_with("checkpoint-5 in " + dir_)) << events[0].unrecognised;
}

TEST_F(CheckpointStoreTest, BesideACheckpointOtherFilesAreNobodysBusiness) {
  store_->watch({1, spec_, user_, true});
  manifest_checkpoint(1);
  write(dir_ + "/optimizer.pt", "x");
  run_until(now_ + 60s);
  for (const auto& event : take<CheckpointsScanned>()) EXPECT_EQ(event.unrecognised, "");
}

TEST_F(CheckpointStoreTest, RemovedCheckpointIsNews) {
  const auto path = manifest_checkpoint(1);
  store_->watch({1, spec_, user_, true});
  settle();
  ASSERT_EQ(reported().size(), 1u);
  std::filesystem::remove_all(path);
  settle();
  EXPECT_TRUE(reported().empty());
}

TEST_F(CheckpointStoreTest, AskedForAnswersOnceWithItsToken) {
  manifest_checkpoint(1);
  store_->scan({1, 77, spec_, user_});
  settle();
  const auto scanned = take<CheckpointsScanned>();
  ASSERT_EQ(scanned.size(), 1u);
  EXPECT_EQ(scanned[0].token, 77u);
  ASSERT_TRUE(scanned[0].found);
  const auto info = scanned[0].found->at(0);

  store_->verify({1, 78, info, user_, dir_});
  settle();
  const auto verified = take<CheckpointVerified>();
  ASSERT_EQ(verified.size(), 1u);
  EXPECT_EQ(verified[0].token, 78u);
  EXPECT_TRUE(verified[0].result);

  store_->quarantine({1, 79, info, user_, spec_.dir});
  settle();
  const auto quarantined = take<CheckpointQuarantined>();
  ASSERT_EQ(quarantined.size(), 1u);
  ASSERT_TRUE(quarantined[0].moved_to);
  EXPECT_EQ(*quarantined[0].moved_to, info.path + ".quarantined-1");  // the scan told what the directory is
}

TEST_F(CheckpointStoreTest, BackgroundVerificationKeepsToItsRate) {
  make({.bytes_per_second = 8 << 20});
  const auto path = dir_ + "/step-1";
  write_manifest_checkpoint(path, 1, {{"w", std::string(32 << 20, 'w')}});
  const auto info = scan().at(0);
  const Instant start = now_;
  store_->verify({1, 0, info, user_, dir_});
  run_until(start + 3s);
  EXPECT_TRUE(take<CheckpointVerified>().empty());
  store_->verify({1, 5, info, user_, dir_});  // somebody waits: at once
  run_until(now_ + 1ms);
  ASSERT_EQ(take<CheckpointVerified>().size(), 1u);
  run_until(start + 10s);
  const auto verified = take<CheckpointVerified>();
  ASSERT_EQ(verified.size(), 1u);
  EXPECT_TRUE(verified[0].result);
}

TEST_F(CheckpointStoreTest, WatchOffEndsBackgroundVerification) {
  manifest_checkpoint(1);
  store_->verify({1, 0, scan().at(0), user_, dir_});
  dispatch();  // in flight
  store_->verify({1, 0, scan().at(0), user_, dir_});
  store_->watch({1, {}, user_, false});
  settle();
  const auto verified = take<CheckpointVerified>();
  ASSERT_EQ(verified.size(), 2u);
  for (const auto& event : verified) EXPECT_EQ(event.result.error().code, ErrorCode::unavailable);
}

TEST_F(CheckpointStoreTest, VerificationsBeyondTheLimitAreRefused) {
  manifest_checkpoint(1);
  const auto info = scan().at(0);
  for (std::size_t i = 0; i <= store::kPendingVerifications; ++i) {
    user_.uid = static_cast<std::uint32_t>(i % store::kShareOfUser);  // one alone has not all places
    store_->verify({1, i + 1, info, user_, dir_});
  }
  dispatch();
  const auto refused = take<CheckpointVerified>();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].result.error().code, ErrorCode::limit);
}

TEST_F(CheckpointStoreTest, RemoveReportsFailuresInTheLogOnly) {
  const auto path = manifest_checkpoint(1);
  store_->scan({1, 1, spec_, user_});
  settle();
  const auto info = take<CheckpointsScanned>()[0].found->at(0);
  write(path + "/MANIFEST.json", manifest_of(2, {}));
  store_->remove({1, info, user_, spec_.dir});
  settle();
  EXPECT_EQ(log_.events, std::vector<std::string>{"checkpoint.not-removed"});
  store_->remove({1, scan().at(0), user_, spec_.dir});
  settle();
  EXPECT_FALSE(exists(path + "/MANIFEST.json"));
  EXPECT_TRUE(events_.empty());
}

TEST_F(CheckpointStoreTest, UnreadableDirectoryIsReportedOnceAndTriedAgain) {
  spec_.dir = root_ + "/file";
  write(spec_.dir, "x");
  store_->watch({1, spec_, user_, true});
  run_until(now_ + 30s);
  auto events = take<CheckpointsScanned>();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_FALSE(events[0].found);
  EXPECT_EQ(log_.events.size(), 1u);
  std::filesystem::remove(spec_.dir);
  write_manifest_checkpoint(spec_.dir + "/step-1", 1, {{"w", "w"}});
  run_until(now_ + 30s);
  ASSERT_EQ(reported().size(), 1u);
}

TEST_F(CheckpointStoreTest, MayGoWhileWorkIsUnderWay) {
  manifest_checkpoint(1);
  const auto info = scan().at(0);
  store_->watch({1, spec_, user_, true});
  store_->verify({1, 1, info, user_, dir_});
  store_->scan({1, 2, spec_, user_});
  dispatch();
  ASSERT_GE(jobs_.size(), 3u);
  store_.reset();
  while (run_one()) continue;
  EXPECT_TRUE(events_.empty());
}

TEST_F(CheckpointStoreTest, DescriptorIsReadableAfterAChange) {
  ASSERT_GE(store_->fd(), 0);
  store_->watch({1, spec_, user_, true});
  settle();
  manifest_checkpoint(1);
  pollfd waiting{store_->fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 1);
}

}  // namespace
}  // namespace dtrain::test
