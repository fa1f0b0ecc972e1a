#include "agent/dtrainctl/stream.h"

#include <algorithm>

namespace dtrain::ctl {
namespace {

constexpr auto kConnectTime = std::chrono::seconds(1);  // for one attempt: an agent with a full backlog must not delay a ^C

}  // namespace

Outcome<void> Stream::start() {
  auto connection = session_.connect();
  if (!connection) return failed(connection.error());
  connection_ = std::move(*connection);
  opener_(*connection_);
  if (answers_at_once_) answer_by_ = session_.answer_deadline();
  return {};
}

Outcome<std::vector<wire::Message>> Stream::turn() {
  std::vector<wire::Message> messages;
  if (finished_) return messages;
  if (!connection_) {
    if (Clock::now() < retry_at_) return messages;
    auto connection = Connection::open(session_.globals.agent, Clock::now() + kConnectTime);
    if (!connection) {
      if (!connection.error().lost) return failed(connection.error());
      retry_at_ = Clock::now() + kReconnectPause;
      away_ = true;
      return messages;
    }
    away_ = false;
    connection_ = std::move(*connection);
    opener_(*connection_);
  }
  connection_->transfer();
  while (true) {
    auto message = connection_->next();
    if (!message) {
      if (!message.error().lost) return failed(message.error());
      connection_.reset();
      answer_by_ = kNoDeadline;
      retry_at_ = Clock::now() + kReconnectPause;
      return messages;  // messages before the end count
    }
    if (!*message) {
      if (messages.empty() && Clock::now() >= answer_by_) return failed(no_answer());
      return messages;
    }
    answer_by_ = kNoDeadline;
    messages.push_back(std::move(**message));
  }
}

pollfd Stream::poll_request() const { return connection_ && !finished_ ? connection_->poll_request() : pollfd{-1, 0, 0}; }

void Stream::finish() {
  finished_ = true;
  away_ = false;
  connection_.reset();
  retry_at_ = kNoDeadline;
}

void wait_for(const std::vector<const Stream*>& streams, std::vector<pollfd>& more, Deadline deadline) {
  std::vector<pollfd> all = more;
  for (const Stream* stream : streams) {
    all.push_back(stream->poll_request());
    deadline = std::min(deadline, stream->retry_at());
  }
  if (::poll(all.data(), all.size(), poll_timeout(deadline)) < 0)
    for (pollfd& p : all) p.revents = 0;  // a signal: the caller looks around and calls again
  for (std::size_t i = 0; i < more.size(); ++i) more[i].revents = all[i].revents;
}

}  // namespace dtrain::ctl
