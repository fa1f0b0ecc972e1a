#include "common/node/checkpoint_queries.h"

#include "common/node/reply.h"
#include "common/node/serve.h"
#include "common/node/views.h"

namespace dtrain::node {

using cluster::JobRecord;
using wire::MessageType;

void CheckpointQueries::closed(ConnectionId connection) {
  for (const Verification& v : verifications_)
    if (v.connection == connection)
      for (const auto& [token, asked] : v.awaited) requests_.withdraw(token);
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
  Verification v{e.connection, e.request, {checkpoint_views(c_, *job), job->unrecognised}, {}, {}};
  if (!job->spec.checkpoint && v.reply.unrecognised.empty())
    v.reply.unrecognised = "job " + q.job +
                           " names no directory of checkpoints, so none are looked for; checkpoint: {dir: /DIRECTORY} in its "
                           "file, or --set spec.checkpoint.dir=/DIRECTORY, names one";
  if (q.verify) {
    for (std::size_t i = 0; i < job->checkpoints.size(); ++i) {
      const auto& r = job->checkpoints[i];
      if (is_good(r.state)) verify(v, *job, i, host_of(r), r.info);
      if (r.state != cluster::CheckpointState::shares) continue;
      for (const auto& p : r.places) {
        if (relays_.away(p.host)) continue;  // the view names it
        transfer::CheckpointInfo info = r.info;
        info.complete = false;
        info.place = p.place;
        info.shares = p.shares;
        if (!info.is_share()) info.shares.files.emplace_back();  // its names are forgotten
        verify(v, *job, i, p.host, std::move(info));
      }
    }
  }
  if (v.awaited.empty()) return reply(c_, e, MessageType::checkpoints, v.reply);
  verifications_.push_back(std::move(v));
}

void CheckpointQueries::verify(Verification& v, const JobRecord& job, std::size_t view, const NodeId& host, transfer::CheckpointInfo info) {
  const std::uint64_t token = c_.tickets.give(this);
  v.awaited[token] = {view, host, info.is_share()};
  requests_.verify(host, verification(job, token, std::move(info)));
}

// A checkpoint that could not be read is not known to be damaged: its state stays as it was. Of shares every host's problem is told.
void CheckpointQueries::told(Verification& v, const Verification::Asked& asked, const Error& error) const {
  wire::CheckpointView& view = v.reply.checkpoints[asked.view];
  if (error.code == ErrorCode::damaged) v.damaged.insert(asked.view);
  if (v.damaged.contains(asked.view)) view.state = "damaged";
  else if (error.code == ErrorCode::not_found) view.state = asked.share ? "incomplete" : "deleted";
  if (!asked.share) {
    view.defect = error.text();
    return;
  }
  std::string text = error.text();
  if (asked.host == c_.facts.id) text = "host " + c_.facts.name + ": " + text;
  view.defect = text + "; " + view.defect;
}

void CheckpointQueries::verified(const CheckpointVerified& e) {
  for (auto it = verifications_.begin(); it != verifications_.end(); ++it) {
    const auto awaited = it->awaited.find(e.token);
    if (awaited == it->awaited.end()) continue;
    if (!e.result) told(*it, awaited->second, e.result.error());
    else if (!awaited->second.share) it->reply.checkpoints[awaited->second.view].state = "verified";
    it->awaited.erase(awaited);
    if (it->awaited.empty()) {
      reply(c_, it->connection, it->request, MessageType::checkpoints, it->reply);
      verifications_.erase(it);
    }
    return;
  }
}

// ---------------------------------------------------------------- rows

constinit const Verb verbs::query_checkpoints{.serve = serve<&CheckpointQueries::checkpoints>,
                                              .rule = {Needs::current_copy, "show checkpoints", PassedOn::to_coordinator}};

}  // namespace dtrain::node
