#include "common/relay/stream_end.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace dtrain::relay {
namespace {

// Drops the front of a buffer once that is most of it, so that bytes are rarely moved.
void shed(std::string& buffer, std::size_t& start) {
  if (start < buffer.size() && start < kWindowBytes) return;
  buffer.erase(0, start);
  start = 0;
  if (buffer.empty()) buffer = std::string();  // an idle stream keeps no memory
}

}  // namespace

StreamEnd::StreamEnd(Instant now, wire::RelayOpen open)
    : opener_(true), open_(std::move(open)), confirmed_(false), repeat_at_(now), said_(now), heard_(now) {
  told_allowed_ = open_.allowed = allowance();
}

StreamEnd::StreamEnd(Instant now, std::uint64_t stream, std::uint64_t allowed)
    : opener_(false), confirmed_(true), may_send_to_(allowed), answer_due_(true), said_(now), heard_(now) {
  open_.stream = stream;
}

void StreamEnd::write(std::string_view bytes) { out_.append(bytes); }

void StreamEnd::consume(std::size_t bytes) {
  CHECK(bytes <= readable().size());
  in_start_ += bytes;
  consumed_ += bytes;
  shed(in_, in_start_);
  // Allows half a window at a time: otherwise a reader of small pieces would cause a message for each.
  if (allowance() - told_allowed_ >= kWindowBytes / 2) answer_due_ = true;
}

void StreamEnd::set_repeat(Instant now) {
  repeat_after_ = kRepeatAfter;
  repeat_at_ = acknowledged_ < sent_ || waits_for_leave() ? now + repeat_after_ : kNever;
}

void StreamEnd::opened_again(Instant now) {
  heard_ = now;
  answer_due_ = true;
}

void StreamEnd::receive(Instant now, const wire::RelayData& data) {
  heard_ = now;
  const bool first = !std::exchange(confirmed_, true);
  const bool blocked = waits_for_leave();
  may_send_to_ = std::max(may_send_to_, data.allowed);
  // The other end cannot have received what was never sent.
  const bool progress = data.received > acknowledged_ && data.received <= highest_sent_;
  if (progress) {
    out_start_ += static_cast<std::size_t>(data.received - acknowledged_);
    acknowledged_ = data.received;
    sent_ = std::max(sent_, acknowledged_);
    shed(out_, out_start_);
  }
  if (first || progress || (blocked && !waits_for_leave())) set_repeat(now);
  if (data.asks || !data.bytes.empty()) answer_due_ = true;
  if (data.offset > received_ || data.offset + data.bytes.size() <= received_) return;  // a gap, or nothing new
  std::string_view fresh = std::string_view(data.bytes).substr(static_cast<std::size_t>(received_ - data.offset));
  fresh = fresh.substr(0, static_cast<std::size_t>(allowance() - received_));  // more was never allowed
  in_.append(fresh);
  received_ += fresh.size();
}

wire::RelayData StreamEnd::message(Instant now) {
  wire::RelayData data;
  data.stream = open_.stream;
  data.opener = opener_;
  data.offset = sent_;
  data.received = received_;
  data.allowed = told_allowed_ = allowance();
  answer_due_ = false;
  said_ = now;
  return data;
}

std::optional<wire::RelayMessage> StreamEnd::next(Instant now) {
  if (!confirmed_) {
    if (repeat_at_ > now) return std::nullopt;
    repeat_at_ = now + repeat_after_;
    repeat_after_ = std::min(2 * repeat_after_, kRepeatAtMost);
    return open_;
  }
  bool asks = false;
  if (repeat_at_ == kNever && waits_for_leave()) repeat_at_ = now + repeat_after_;
  if (repeat_at_ <= now) {
    repeat_after_ = std::min(2 * repeat_after_, kRepeatAtMost);
    repeat_at_ = now + repeat_after_;
    asks = acknowledged_ == sent_;
    sent_ = acknowledged_;
  }
  if (may_send()) {
    wire::RelayData data = message(now);
    const std::uint64_t most = std::min(written(), may_send_to_) - sent_;
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(most, wire::kRelaySegmentBytes));
    data.bytes = out_.substr(out_start_ + static_cast<std::size_t>(sent_ - acknowledged_), size);
    sent_ += size;
    highest_sent_ = std::max(highest_sent_, sent_);
    if (repeat_at_ == kNever) repeat_at_ = now + repeat_after_;
    return data;
  }
  if (!answer_due_ && !asks && said_ + kKeepAlive > now) return std::nullopt;
  wire::RelayData data = message(now);
  data.asks = asks;
  return data;
}

Instant StreamEnd::deadline() const {
  if (!confirmed_) return std::min(repeat_at_, heard_ + kSilence);
  if (may_send() || answer_due_ || (repeat_at_ == kNever && waits_for_leave())) return Instant{};
  return std::min({repeat_at_, said_ + kKeepAlive, heard_ + kSilence});
}

}  // namespace dtrain::relay
