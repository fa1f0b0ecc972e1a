// Many verifications on one worker thread: in slices, in turn, awaited ones before background ones, and the latter no
// faster than a given rate. Users take turns, and none has more than kShareOfUser of the places. Loop thread only; `post` runs the slices.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/store/checkpoint_verify.h"
#include "common/base/time.h"
#include "common/node/effect.h"
#include "common/node/event.h"

namespace dtrain::store {

// An awaited one is given up after this: whoever asked has stopped to wait, and its job may be long gone.
inline constexpr Duration kAwaitedWithin = 1h;
inline constexpr std::size_t kShareOfUser = 4;  // a quarter

class VerificationQueue : public std::enable_shared_from_this<VerificationQueue> {
 public:
  using Post = std::function<void(std::function<void()> work, std::function<void()> done)>;
  using EventSink = std::function<void(node::Event)>;

  // bytes_per_second: of the background ones; 0: no limit.
  VerificationQueue(Post post, std::uint64_t bytes_per_second, std::size_t most_pending);

  void add(const node::VerifyCheckpoint& effect);
  // Unfinished ones are answered with Error{unavailable}: the background ones of a job, or that awaited one.
  void end_background(JobId job);
  void end(const node::EndVerification& effect);
  Instant deadline() const;
  void dispatch(Instant now, const EventSink& sink);

 private:
  struct Running {
    node::VerifyCheckpoint effect;
    std::optional<Verification> verification;
    std::optional<Status> outcome;
    bool cancelled = false;
    Instant until{};  // of an awaited one, from its first slice on
    bool urgent() const { return effect.token != 0; }
  };
  static void run_slice(Running& running);
  std::shared_ptr<Running> take_next(std::deque<std::shared_ptr<Running>>& from);
  std::size_t pending() const { return urgent_.size() + background_.size() + (in_flight_ ? 1 : 0); }
  std::size_t pending_of(const task::User& user) const;
  void end_those(const std::function<bool(const Running&)>& concerned, const std::string& cause);
  void end(const Running& running, ErrorCode code, const std::string& cause, const std::string& next);
  void start_slice(std::shared_ptr<Running> running);
  void slice_ended(const std::shared_ptr<Running>& running);

  const Post post_;
  const std::uint64_t bytes_per_second_;
  const std::size_t most_pending_;
  std::deque<std::shared_ptr<Running>> urgent_, background_;  // the front is next
  std::shared_ptr<Running> in_flight_;
  std::uint32_t last_uid_ = 0;  // of the last slice
  Instant background_from_{};   // no background slice before
  std::vector<node::CheckpointVerified> ended_;
};

}  // namespace dtrain::store
