// A submit that was answered with success is in every later list of jobs, under its id and name, until somebody asked
// for its removal or its time to live is over. (A job's id has the index of its entry: a copy of the ledger that has not
// come so far need not have it.) A submit behind an acknowledged delete is never answered with the job that was deleted.
#include <map>

#include "tests/sim/checkers/checkers.h"

namespace dtrain::sim {
namespace {

class AcknowledgedSubmitNeverLost final : public Checker {
 public:
  using Checker::Checker;
  std::string_view name() const override { return "acknowledged_submit_never_lost"; }

  void on_jobs(const wire::JobsReply& jobs) override {
    for (const auto& [id, job] : world_.book().jobs()) {
      if (!job.acknowledged || job.removal_asked || id % cluster::kJobsOfHistory > world_.book().index()) continue;
      const job::JobSpec* spec = world_.book().spec_of(id);
      if (spec != nullptr && spec->policy.ttl_after_finished) continue;
      const wire::JobView* view = nullptr;
      for (const auto& v : jobs.jobs)
        if (v.id == id) view = &v;
      if (view == nullptr) return violation("job " + std::to_string(id) + " (" + job.name + ") is not listed");
      if (view->name != job.name || tag_of(view->labels) != job.tag)
        return violation("job " + std::to_string(id) + " was " + job.name + ", is listed as " + view->name);
    }
  }

  // A request that is sent again submits the same job.
  void on_reply(const SentRequest& sent, const wire::Message& message) override {
    if (sent.type == wire::MessageType::action && sent.action.action == wire::Action::remove && message.type == wire::MessageType::ok)
      for (const auto& [id, job] : world_.book().jobs())
        if (job.name == sent.action.job && job.known_since < sent.at) deleted_.try_emplace(id, world_.now());
    if (sent.type != wire::MessageType::submit || message.type != wire::MessageType::submitted) return;
    const auto reply = wire::decode<wire::SubmitReply>(message.payload);
    if (!reply) return;
    const auto deleted = deleted_.find(reply->id);
    const cluster::JobRecord* record = world_.ledger().find(reply->id);
    if (sent.anew && deleted != deleted_.end() && sent.at > deleted->second && (record == nullptr || record->deleting))
      violation("submit of file " + std::to_string(sent.tag) + " was answered with job " + std::to_string(reply->id) +
                ", whose deletion had been acknowledged before");
    const KnownJob* job = world_.book().find(reply->id);
    if (job != nullptr && job->tag != sent.tag)
      violation("submit of file " + std::to_string(sent.tag) + " was answered with job " + std::to_string(reply->id) +
                ", which is of file " + std::to_string(job->tag));
  }

 private:
  std::map<JobId, Instant> deleted_;  // jobs deleted by an acknowledged delete, and when
};

}  // namespace

std::unique_ptr<Checker> acknowledged_submit_never_lost(WorldView& world) { return std::make_unique<AcknowledgedSubmitNeverLost>(world); }

}  // namespace dtrain::sim
