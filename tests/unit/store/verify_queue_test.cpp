// Whose verification is next. The worker is run by hand; whether a verification succeeds does not matter.
#include <gmock/gmock.h>

#include <random>
#include <thread>

#include "agent/store/checkpoint_verify_queue.h"
#include "tests/unit/store/checkpoint_world.h"

namespace dtrain::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class VerifyQueue : public CheckpointWorld {
 protected:
  std::shared_ptr<store::VerificationQueue> queue(std::size_t most) {
    return std::make_shared<store::VerificationQueue>(
        [this](std::function<void()> work, std::function<void()> done) {
          posted_ = {std::move(work), std::move(done)};
        },
        0, most);
  }
  void ask(store::VerificationQueue& queue, std::uint32_t uid, std::uint64_t token, const std::string& path) {
    node::VerifyCheckpoint effect;
    effect.job = 1;
    effect.token = token;
    for (const auto& info : scan())
      if (info.path == path) effect.info = info;
    effect.user.uid = uid;
    queue.add(effect);
  }
  // One slice, and what it answered.
  void slice(store::VerificationQueue& queue, Instant now) {
    queue.dispatch(now, [this](node::Event event) {
      const auto& verified = std::get<node::CheckpointVerified>(event);
      order_.push_back(verified.token);
      if (!verified.result) errors_.push_back(verified.result.error().text());
    });
    if (!posted_.first) return;
    std::exchange(posted_.first, nullptr)();
    std::exchange(posted_.second, nullptr)();
  }

  std::pair<std::function<void()>, std::function<void()>> posted_;
  std::vector<std::uint64_t> order_;
  std::vector<std::string> errors_;
};

TEST_F(VerifyQueue, UsersTakeTurns) {
  const auto path = manifest_checkpoint(1);
  const auto q = queue(40);
  for (std::uint64_t token = 1; token <= 5; ++token) ask(*q, 1, token, path);
  ask(*q, 2, 21, path);
  ask(*q, 3, 31, path);
  for (int i = 0; i < 9; ++i) slice(*q, Instant{1s});
  EXPECT_THAT(order_, ElementsAre(1, 21, 2, 31, 3, 4, 5));
}

TEST_F(VerifyQueue, NobodyHasAllPlaces) {
  const auto path = manifest_checkpoint(1);
  const auto q = queue(8);
  for (std::uint64_t token = 1; token <= 3; ++token) ask(*q, 1, token, path);
  ask(*q, 2, 21, path);
  for (int i = 0; i < 6; ++i) slice(*q, Instant{1s});
  ASSERT_FALSE(errors_.empty());
  EXPECT_THAT(errors_.front(), HasSubstr("2 others are waiting, 2 of this user")) << "a quarter of eight";
  EXPECT_THAT(order_, ElementsAre(3, 1, 21, 2));
}

// All read into one buffer of their thread, and their next slice may be on another one.
TEST_F(VerifyQueue, ThoseThatTakeTurnsReadTheirOwn) {
  std::mt19937 random(3);
  for (const std::int64_t step : {1, 2}) {
    std::string weights(5 << 20, '\0');
    std::ranges::generate(weights, [&] { return static_cast<char>(random()); });
    torch_checkpoint(step, weights);
  }
  std::vector<store::Verification> both;
  for (const auto& info : scan()) {
    auto begun = store::Verification::begin(info, dir_);
    ASSERT_TRUE(begun);
    both.push_back(std::move(*begun));
  }
  ASSERT_EQ(both.size(), 2u);
  int slices = 0;
  for (bool done = false; !done; ++slices) {
    done = true;
    for (store::Verification& verification : both) {
      const auto advance = [&] {
        const auto more = verification.advance(300'000);
        ASSERT_TRUE(more) << slices << ": " << more.error().text();
        done = done && *more;
      };
      if (slices % 3 == 2) std::thread(advance).join();
      else advance();
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(slices, 10);
}

// Such as one of many terabytes that are not there, whose job was deleted long ago.
TEST_F(VerifyQueue, AnAwaitedOneEndsInTime) {
  const std::string path = dir_ + "/step-1";
  write_manifest_checkpoint(path, 1, {{"w", std::string(64 << 20, 'w')}});
  const auto q = queue(8);
  ask(*q, 0, 7, path);
  slice(*q, Instant{1s});
  slice(*q, Instant{1s} + store::kAwaitedWithin - 1ms);
  EXPECT_TRUE(order_.empty());
  slice(*q, Instant{1s} + store::kAwaitedWithin);
  EXPECT_THAT(order_, ElementsAre(7));
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_THAT(errors_.front(), HasSubstr("it takes too long"));
}

// Its job was cancelled, or the client went away: the one that is being read, one that waits, and one that is not there any more.
TEST_F(VerifyQueue, OneForWhichNobodyWaitsIsOverAtOnce) {
  const std::string path = dir_ + "/step-1";
  write_manifest_checkpoint(path, 1, {{"w", std::string(64 << 20, 'w')}});
  const auto q = queue(40);
  for (const std::uint64_t token : {7, 8, 9}) ask(*q, 0, token, path);
  q->dispatch(Instant{1s}, [](const node::Event&) {});  // a slice of the first is under way
  ASSERT_TRUE(posted_.first);
  q->end({1, 7});
  q->end({1, 9});
  q->end({2, 8});
  q->end({1, 7});
  std::exchange(posted_.first, nullptr)();
  std::exchange(posted_.second, nullptr)();
  slice(*q, Instant{1s});
  EXPECT_THAT(order_, ElementsAre(7, 9));
  EXPECT_THAT(errors_, ElementsAre(HasSubstr("nobody waits for it any more"), HasSubstr("nobody waits for it any more")));
  for (int i = 0; i < 40; ++i) slice(*q, Instant{1s});
  EXPECT_THAT(order_, ElementsAre(7, 9, 8)) << "one answer for each";
  EXPECT_EQ(errors_.size(), 2u);
}

}  // namespace
}  // namespace dtrain::test
