// A request with many replies that survives the agent: when the connection breaks, the agent is tried until it is
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
  // Builds the request for a new connection, also after each loss. `what` names it in messages.
  using Opener = std::function<void(Connection&)>;
  // answers_at_once: the first reply does not depend on anything that is yet to happen.
  Stream(const Session& session, Opener opener, bool answers_at_once)
      : session_(session), opener_(std::move(opener)), answers_at_once_(answers_at_once) {}

  // Makes the first connection. An agent that cannot be reached now is a failure; so is, in turn(), an agent that
  // owes its first answer for longer than --timeout. Later the agent may stay away for any time.
  Outcome<void> start();
  // Every message that is there now; none while the agent is away. Fails only if trying again cannot help.
  Outcome<std::vector<wire::Message>> turn();
  // For poll(): descriptor -1 while the agent is away.
  pollfd poll_request() const;
  // When turn() should be called even if nothing happened.
  Deadline retry_at() const { return connection_ ? answer_by_ : retry_at_; }
  // The agent has not answered yet.
  bool owes_answer() const { return answer_by_ != kNoDeadline; }
  bool connected() const { return connection_.has_value(); }
  // The connection broke, and the agent did not answer at once. Agents also end connections in order to be asked anew
  // (common/node/host_logs.h), which is no loss to report.
  bool away() const { return away_; }
  // The request has ended: the connection is closed, and turn() returns nothing more.
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

// Waits until one of the streams or `more` is ready, or the deadline passed. Fills in revents of `more`.
void wait_for(const std::vector<const Stream*>& streams, std::vector<pollfd>& more, Deadline deadline);

}  // namespace dtrain::ctl
