#include "common/node/checkpoint_queries.h"

#include "common/node/reply.h"
#include "common/node/views.h"

namespace dtrain::node {

using cluster::JobRecord;
using wire::MessageType;

void CheckpointQueries::closed(ConnectionId connection) {
  std::erase_if(verifications_, [&](const Verification& v) { return v.connection == connection; });
}

// A host that has the checkpoint and is in service; otherwise this one, which reports what it does not find.
NodeId CheckpointQueries::host_of(const cluster::CheckpointRecord& r) const {
  for (const auto& p : r.places)
    if (p.host == c_.facts.id) return p.host;
  for (const auto& p : r.places)
    if (!relays_.away(p.host)) return p.host;
  return c_.facts.id;
}

void CheckpointQueries::checkpoints(const Request& e, const wire::CheckpointsRequest& q, const Caller& caller) {
  const JobRecord* job = callers_.permitted_job(e, q.job, caller, Deed::read, "list the checkpoints of");
  if (job == nullptr) return;
  Verification v{e.connection, e.request, {checkpoint_views(c_, *job), job->unrecognised}, {}};
  if (q.verify) {
    for (std::size_t i = 0; i < job->checkpoints.size(); ++i) {
      const auto& r = job->checkpoints[i];
      if (r.state != cluster::CheckpointState::complete && r.state != cluster::CheckpointState::verified) continue;
      const std::uint64_t token = c_.tickets.give(this);
      v.awaited[token] = i;
      requests_.verify(host_of(r), VerifyCheckpoint{job->id, token, r.info, job->user});
    }
  }
  if (v.awaited.empty()) return reply(c_, e, MessageType::checkpoints, v.reply);
  verifications_.push_back(std::move(v));
}

void CheckpointQueries::verified(const CheckpointVerified& e) {
  for (auto it = verifications_.begin(); it != verifications_.end(); ++it) {
    const auto awaited = it->awaited.find(e.token);
    if (awaited == it->awaited.end()) continue;
    wire::CheckpointView& view = it->reply.checkpoints[awaited->second];
    // A checkpoint that could not be read is not known to be damaged: its state stays as it was.
    const ErrorCode code = e.result ? ErrorCode::internal : e.result.error().code;
    if (e.result) view.state = "verified";
    else if (code == ErrorCode::damaged) view.state = "damaged";
    else if (code == ErrorCode::not_found) view.state = "deleted";
    if (!e.result) view.defect = e.result.error().text();
    it->awaited.erase(awaited);
    if (it->awaited.empty()) {
      reply(c_, it->connection, it->request, MessageType::checkpoints, it->reply);
      verifications_.erase(it);
    }
    return;
  }
}

}  // namespace dtrain::node
