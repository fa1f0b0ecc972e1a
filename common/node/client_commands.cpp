#include "common/node/client_commands.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/node/reply.h"
#include "common/node/verbs.h"

namespace dtrain::node {

using wire::MessageType;

void ClientCommands::closed(ConnectionId connection) {
  for (auto& [id, p] : pending_)
    if (p.connection == connection) p.connection = 0;  // its command may commit all the same
}

bool ClientCommands::room(const Request& e) {
  if (c_.storage_failed) {
    reply_error(c_, e,
                {ErrorCode::unavailable, "could not change the cluster's state: the agent's disk failed",
                 "see the agent's log, mend the disk, restart the agent; running tasks are not touched"});
    return false;
  }
  if (std::max<std::uint64_t>(c_.replicated->pending(), proposals_.commands()) < limits::kPendingProposals) return true;
  reply_error(
      c_, e,
      {ErrorCode::unavailable, "could not take the request: " + std::to_string(limits::kPendingProposals) + " are waiting for the disk",
       "try again in a moment"});
  return false;
}

void ClientCommands::pend(const MemberId& id, const Request& e, MessageType type, const Caller& caller, std::vector<std::string> warnings) {
  CHECK(verb_of(type)->audit == Audit::entry);
  pending_[id] = {e.connection, e.request, type, caller, std::move(warnings)};
}

void ClientCommands::applied(const cluster::Applied& result) {
  const auto it = result.request.none() ? pending_.end() : pending_.find(result.request);
  if (it == pending_.end()) return;
  const Pending p = std::move(it->second);
  pending_.erase(it);
  if (result.forbidden) callers_.note_refusal(p.caller, result.status.error().message);
  if (p.connection == 0) return;
  if (!result.status) return reply_error(c_, p.connection, p.request, result.status.error());
  if (p.type != MessageType::submit) return reply(c_, p.connection, p.request, MessageType::ok, wire::Empty{});
  const cluster::JobRecord* job = c_.ledger.find(result.job);
  reply(c_, p.connection, p.request, MessageType::submitted,
        wire::SubmitReply{result.name, result.job, job ? job->generation : 0, result.unchanged, p.warnings});
}

void ClientCommands::given_up(const MemberId& id) {
  const auto it = pending_.find(id);
  if (it == pending_.end()) return;
  const Pending p = std::move(it->second);
  pending_.erase(it);
  if (p.connection == 0) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(kAnswerWithin).count();
  reply_error(c_, p.connection, p.request,
              {ErrorCode::refused,
               "could not carry out the request: no coordinator took it within " + std::to_string(seconds) +
                   " s; a majority of the voters must be up",
               "dtrainctl status and dtrainctl nodes show which agents are missing: start them. It may still be carried out"});
}

void ClientCommands::storage_failed(const Error& error) {
  for (const auto& [id, p] : pending_)
    if (p.connection != 0)
      reply_error(c_, p.connection, p.request, {ErrorCode::unavailable, "could not make the change durable: " + error.message, error.next});
  pending_.clear();
}

}  // namespace dtrain::node
