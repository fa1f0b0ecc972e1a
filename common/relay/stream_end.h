// One end of a reliable stream of bytes, in each direction, between two agents whose links lose, repeat and reorder
// messages (wire/relay.h). What was written is kept until the other end acknowledges it, and is sent again if it does
// not; bytes that arrive twice or out of order are dropped. The other end decides how much it accepts: a reader that
// stops stops the sender, so that at most one window of bytes waits unread at each end.
//
// A state machine without I/O and clock: it is told the time and what arrived, and answers with what to send. It does
// not end by itself: RelayClose, and the meaning of the bytes, belong to its owner.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/time.h"
#include "common/wire/relay.h"

namespace dtrain::relay {

inline constexpr std::size_t kWindowBytes = 256 << 10;  // sent and not yet read at the other end, in each direction
inline constexpr Duration kRepeatAfter = 500ms;         // without an acknowledgement; doubled each time,
inline constexpr Duration kRepeatAtMost = 4s;           // up to this
inline constexpr Duration kKeepAlive = 5s;              // something is sent at least this often
inline constexpr Duration kSilence = 30s;               // after so long without a message the stream is lost

class StreamEnd {
 public:
  // The opening end; the constructor sets `open.allowed`.
  StreamEnd(Instant now, wire::RelayOpen open);
  // The accepting end.
  StreamEnd(Instant now, std::uint64_t stream, std::uint64_t allowed);

  std::uint64_t stream() const { return open_.stream; }
  bool opener() const { return opener_; }

  // ---- this end's bytes
  //
  // Accepts any number of bytes: the owner must look at unacknowledged() before.
  void write(std::string_view bytes);
  std::size_t unacknowledged() const { return out_.size() - out_start_; }

  // ---- the other end's bytes, in order; at most kWindowBytes wait here
  std::string_view readable() const { return std::string_view(in_).substr(in_start_); }
  void consume(std::size_t bytes);

  // ---- the links
  void receive(Instant now, const wire::RelayData& data);
  // The other end asked again to open this stream.
  void opened_again(Instant now);
  // The next message that is due; to be called until it returns nullopt.
  std::optional<wire::RelayMessage> next(Instant now);
  // When next() will have a message, or silent() becomes true.
  Instant deadline() const;
  bool silent(Instant now) const { return heard_ + kSilence <= now; }

 private:
  std::uint64_t written() const { return acknowledged_ + unacknowledged(); }
  bool may_send() const { return sent_ < written() && sent_ < may_send_to_; }
  bool waits_for_leave() const { return sent_ < written() && sent_ >= may_send_to_; }
  std::uint64_t allowance() const { return consumed_ + kWindowBytes; }
  void set_repeat(Instant now);
  wire::RelayData message(Instant now);

  const bool opener_;
  wire::RelayOpen open_;  // accepting end: only the number is set
  bool confirmed_;        // the other end was heard
  std::string out_;       // from out_start_ on: written and not acknowledged
  std::size_t out_start_ = 0;
  std::uint64_t acknowledged_ = 0, sent_ = 0;  // offsets in what was written; sent_ goes back to send again
  std::uint64_t highest_sent_ = 0;
  std::uint64_t may_send_to_ = 0;
  std::string in_;  // from in_start_ on: received and not consumed
  std::size_t in_start_ = 0;
  std::uint64_t received_ = 0, consumed_ = 0, told_allowed_ = 0;
  bool answer_due_ = false;
  Instant repeat_at_ = kNever;  // when to repeat: unacknowledged bytes, the question whether more may be sent, or RelayOpen
  Duration repeat_after_ = kRepeatAfter;
  Instant said_, heard_;
};

}  // namespace dtrain::relay
