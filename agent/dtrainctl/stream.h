// A request with many replies that outlives the agent: when the connection breaks, the agent is looked for until it is
// back, and the request is sent again. For watch, logs -f, events -f.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/dtrainctl/session.h"

namespace dtrain::ctl {

class Stream {
 public:
  // Sends the request on a fresh connection; again after each loss. `what` names it in messages.
  using Opener = std::function<void(Connection&)>;
  // answers_at_once: the request's first reply does not depend on anything that has yet to happen.
  Stream(const Session& session, Opener opener, bool answers_at_once)
      : session_(session), opener_(std::move(opener)), answers_at_once_(answers_at_once) {}

  // The first connection. An agent that cannot be reached now is a failure, and so is, in turn(), one that owes its first
  // answer for longer than --timeout. Later the agent may stay away as long as it likes.
  Outcome<void> start();
  // Every message there is by now; none while the agent is away. Fails only where trying again cannot help.
  Outcome<std::vector<wire::Message>> turn();
  // What to poll for: descriptor -1 while the agent is away.
  pollfd poll_request() const;
  // When turn() should be called even if nothing happened.
  Deadline retry_at() const { return connection_ ? answer_by_ : retry_at_; }
  // The agent has not said anything yet.
  bool owes_answer() const { return answer_by_ != kNoDeadline; }
  bool connected() const { return connection_.has_value(); }
  // It broke, and the agent did not answer at once: agents also end connections to be asked anew (common/node/host_logs.h), which is no
  // loss that anybody need hear of.
  bool away() const { return away_; }
  // The request came to its end: the connection is closed, turn() answers nothing more.
  void finish();
  bool finished() const { return finished_; }

 private:
  const Session& session_;
  Opener opener_;
  std::optional<Connection> connection_;
  Deadline retry_at_{};
  bool answers_at_once_;
  Deadline answer_by_ = kNoDeadline;
  bool finished_ = false, away_ = false;
};

// Waits until one of the streams or `more` has something, or the deadline passed. `more`: revents are filled in.
void wait_for(const std::vector<const Stream*>& streams, std::vector<pollfd>& more, Deadline deadline);

}  // namespace dtrain::ctl
