#include "agent/store/checkpoint_verify_queue.h"

#include <algorithm>

#include "agent/account/as_user.h"

namespace dtrain::store {
namespace {

constexpr std::uint64_t kSliceBytes = 4 << 20;  // a few milliseconds, for which other work on the same thread waits

}  // namespace

VerificationQueue::VerificationQueue(Post post, std::uint64_t bytes_per_second, std::size_t most_pending)
    : post_(std::move(post)), bytes_per_second_(bytes_per_second), most_pending_(most_pending) {}

std::size_t VerificationQueue::pending_of(const task::User& user) const {
  const auto of_user = [&](const std::shared_ptr<Running>& running) { return running->effect.user.uid == user.uid; };
  return static_cast<std::size_t>(std::ranges::count_if(urgent_, of_user) + std::ranges::count_if(background_, of_user) +
                                  (in_flight_ && of_user(in_flight_) ? 1 : 0));
}

void VerificationQueue::end(const Running& running, ErrorCode code, const std::string& cause, const std::string& next) {
  const auto& effect = running.effect;
  ended_.push_back(
      {effect.job, effect.token, effect.info.path, fail(code, "could not verify checkpoint " + effect.info.path + ": " + cause, next)});
}

void VerificationQueue::add(const node::VerifyCheckpoint& effect) {
  auto running = std::make_shared<Running>();
  running->effect = effect;
  const std::size_t of_user = pending_of(effect.user);
  if (pending() >= most_pending_ || of_user >= std::max<std::size_t>(most_pending_ / kShareOfUser, 1))
    return end(*running, ErrorCode::limit, std::to_string(pending()) + " others are waiting, " + std::to_string(of_user) + " of this user",
               "ask again later");
  (running->urgent() ? urgent_ : background_).push_back(std::move(running));
}

void VerificationQueue::end_those(const std::function<bool(const Running&)>& concerned, const std::string& cause) {
  const auto unwanted = [&](const std::shared_ptr<Running>& running) {
    if (!concerned(*running)) return false;
    end(*running, ErrorCode::unavailable, cause, "");
    return true;
  };
  for (auto* queue : {&urgent_, &background_}) std::erase_if(*queue, unwanted);
  // Its slice ends by itself; nobody is told of that.
  if (in_flight_ && !in_flight_->cancelled) in_flight_->cancelled = unwanted(in_flight_);
}

void VerificationQueue::end_background(JobId job) {
  end_those([job](const Running& running) { return !running.urgent() && running.effect.job == job; }, "its directory is no longer watched");
}

void VerificationQueue::end(const node::EndVerification& effect) {
  const auto is_it = [&](const Running& running) {
    return running.urgent() && running.effect.job == effect.job && running.effect.token == effect.token;
  };
  end_those(is_it, "nobody waits for it any more");
}

Instant VerificationQueue::deadline() const {
  if (!ended_.empty() || (!in_flight_ && !urgent_.empty())) return Instant{};
  return !in_flight_ && !background_.empty() ? background_from_ : kNever;
}

void VerificationQueue::dispatch(Instant now, const EventSink& sink) {
  while (!in_flight_ && !urgent_.empty()) {
    auto next = take_next(urgent_);
    if (next->until == Instant{}) next->until = now + kAwaitedWithin;
    if (now < next->until) start_slice(std::move(next));
    else end(*next, ErrorCode::unavailable, "it takes too long", "verify it where it lies: dtrainctl verify " + next->effect.info.path);
  }
  if (!in_flight_ && !background_.empty() && now >= background_from_) {
    if (bytes_per_second_ > 0)
      background_from_ = now + std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(1s) * kSliceBytes / bytes_per_second_);
    start_slice(take_next(background_));
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
    auto begun = Verification::begin(running.effect.info, running.effect.below);
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

// The first of another user than the last one's, if there is one: however many one user asks for, the others' go on.
std::shared_ptr<VerificationQueue::Running> VerificationQueue::take_next(std::deque<std::shared_ptr<Running>>& from) {
  auto next = std::ranges::find_if(from, [this](const auto& running) { return running->effect.user.uid != last_uid_; });
  if (next == from.end()) next = from.begin();
  auto taken = std::move(*next);
  from.erase(next);
  last_uid_ = taken->effect.user.uid;
  return taken;
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
