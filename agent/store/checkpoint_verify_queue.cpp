#include "agent/store/checkpoint_verify_queue.h"

#include <algorithm>

#include "agent/account/as_user.h"

namespace dtrain::store {
namespace {

constexpr std::uint64_t kSliceBytes = 4 << 20;  // a few milliseconds, for which other work on the same thread waits

}  // namespace

VerificationQueue::VerificationQueue(Post post, std::uint64_t bytes_per_second, std::size_t most_pending)
    : post_(std::move(post)), bytes_per_second_(bytes_per_second), most_pending_(most_pending) {}

void VerificationQueue::add(const node::VerifyCheckpoint& effect) {
  if (urgent_.size() + background_.size() + (in_flight_ ? 1 : 0) >= most_pending_) {
    ended_.push_back({effect.job, effect.token, effect.info.path,
                      fail(ErrorCode::limit,
                           "could not verify checkpoint " + effect.info.path + ": " + std::to_string(most_pending_) + " others are waiting",
                           "ask again later")});
    return;
  }
  auto running = std::make_shared<Running>();
  running->effect = effect;
  (running->urgent() ? urgent_ : background_).push_back(std::move(running));
}

void VerificationQueue::end_background(JobId job) {
  const auto concerned = [job](const std::shared_ptr<Running>& running) { return !running->urgent() && running->effect.job == job; };
  const auto end = [this](const Running& running) {
    ended_.push_back(
        {running.effect.job, running.effect.token, running.effect.info.path,
         fail(ErrorCode::unavailable, "could not verify checkpoint " + running.effect.info.path + ": its directory is no longer watched")});
  };
  for (const auto& running : background_)
    if (concerned(running)) end(*running);
  std::erase_if(background_, concerned);
  if (in_flight_ && concerned(in_flight_) && !in_flight_->cancelled) {
    in_flight_->cancelled = true;
    end(*in_flight_);
  }
}

Instant VerificationQueue::deadline() const {
  if (!ended_.empty() || (!in_flight_ && !urgent_.empty())) return Instant{};
  return !in_flight_ && !background_.empty() ? background_from_ : kNever;
}

void VerificationQueue::dispatch(Instant now, const EventSink& sink) {
  if (!in_flight_ && !urgent_.empty()) {
    start_slice(std::move(urgent_.front()));
    urgent_.pop_front();
  } else if (!in_flight_ && !background_.empty() && now >= background_from_) {
    if (bytes_per_second_ > 0)
      background_from_ = now + std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(1s) * kSliceBytes / bytes_per_second_);
    start_slice(std::move(background_.front()));
    background_.pop_front();
  }
  const auto events = std::exchange(ended_, {});
  for (const auto& event : events) sink(event);
}

void VerificationQueue::run_slice(Running& running) {
  const auto rights = account::AsUser::enter(running.effect.user);
  if (!rights) {
    running.outcome.emplace(fail(rights.error()));
    return;
  }
  if (!running.verification) {
    auto begun = Verification::begin(running.effect.info);
    if (!begun) {
      running.outcome.emplace(fail(begun.error()));
      return;
    }
    running.verification = std::move(*begun);
  }
  const auto done = running.verification->advance(kSliceBytes);
  if (!done) running.outcome.emplace(fail(done.error()));
  else if (*done) running.outcome.emplace();
}

void VerificationQueue::start_slice(std::shared_ptr<Running> running) {
  in_flight_ = running;
  post_([running] { run_slice(*running); },
        [self = weak_from_this(), running] {
          if (const auto queue = self.lock()) queue->slice_ended(running);
        });
}

void VerificationQueue::slice_ended(const std::shared_ptr<Running>& running) {
  in_flight_.reset();
  if (running->cancelled) return;
  if (running->outcome) {
    ended_.push_back({running->effect.job, running->effect.token, running->effect.info.path, std::move(*running->outcome)});
    return;
  }
  // After the others: one huge checkpoint must not keep all others from being verified.
  (running->urgent() ? urgent_ : background_).push_back(running);
}

}  // namespace dtrain::store
