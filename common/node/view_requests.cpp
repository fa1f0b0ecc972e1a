#include "common/node/view_requests.h"

#include <algorithm>

#include "common/base/limits.h"
#include "common/node/cluster_views.h"
#include "common/node/reply.h"
#include "common/node/serve.h"
#include "common/node/views.h"

namespace dtrain::node {

using cluster::JobRecord;
using wire::MessageType;

bool ViewRequests::stale() const { return without_leader(c_) || c_.storage_failed; }

void ViewRequests::jobs(const Request& e, const wire::JobsRequest& q) {
  wire::JobsReply r;
  r.stale = stale();
  std::size_t bytes = 0;
  for (auto entry = c_.ledger.state().jobs.upper_bound(q.after); entry != c_.ledger.state().jobs.end(); ++entry) {
    const auto& job = entry->second;
    if (job.replaced && c_.ledger.find(job.spec.name) != &job) continue;  // it is ending, and its name belongs to another job
    if (!q.job.empty() && job.spec.name != q.job) continue;
    if (!q.user.empty() && job.user.name != q.user) continue;
    if (!q.state.empty() && title(to_string(job.state)) != q.state) continue;
    const bool labelled = std::all_of(q.labels.begin(), q.labels.end(), [&](const auto& label) {
      const auto it = job.spec.labels.find(label.first);
      return it != job.spec.labels.end() && it->second == label.second;
    });
    if (!labelled) continue;
    if (bytes >= limits::kAnswerPageBytes) {
      r.more = true;
      break;
    }
    r.jobs.push_back(job_view(c_, job));
    bytes += wire::encode(r.jobs.back()).size();
  }
  if (!q.job.empty() && r.jobs.empty()) callers_.find_job(e, q.job);
  else reply(c_, e, MessageType::jobs, r);
}

void ViewRequests::tasks(const Request& e, const wire::JobName& q) {
  if (const JobRecord* job = callers_.find_job(e, q.job)) reply(c_, e, MessageType::tasks, wire::TasksReply{task_views(c_, *job), stale()});
}

void ViewRequests::describe(const Request& e, const wire::JobName& q, const Caller& caller) {
  if (const JobRecord* job = callers_.find_job(e, q.job))
    reply(c_, e, MessageType::description,
          description(c_, *job, coordinator_.waiting_for(job->id),
                      permit(Deed::read, caller, callers_.role_of(caller), *job, "").has_value()));
}

void ViewRequests::status(const Request& e, const wire::JobName& q, const Caller& caller) {
  if (!q.job.empty()) return describe(e, q, caller);
  reply(c_, e, MessageType::status, status_view(c_));
}

void ViewRequests::task_specs(const Request& e, const wire::TaskSpecsRequest& q, const Caller& caller) {
  const JobRecord* job = callers_.permitted_job(e, q.job, caller, Deed::read, "show the cluster spec of");
  if (job == nullptr) return;
  auto views = task_spec_views(c_, *job, q.task);
  if (!views) return reply_error(c_, e, views.error());
  if (views->empty())
    return reply_error(c_, e,
                       {ErrorCode::not_found,
                        "could not show the cluster spec of " + q.job + " " + q.task + ": " +
                            (job->generation == 0 ? "it has no generation yet" : "it has no such task"),
                        "dtrainctl tasks " + q.job});
  reply(c_, e, MessageType::task_specs, wire::TaskSpecsReply{std::move(*views), {}, ""});
}

void ViewRequests::nodes(const Request& e, const wire::NodeName& q) {
  wire::NodesReply r;
  r.nodes = node_views(c_, q.node);
  r.stale = c_.storage_failed || (c_.holds_ledger() && without_leader(c_));
  if (!q.node.empty() && r.nodes.empty())
    return reply_error(
        c_, e,
        {ErrorCode::not_found, "could not find node " + q.node + ": this cluster has none of that name", instead_of_node(c_, q.node)});
  reply(c_, e, MessageType::nodes, r);
}

void ViewRequests::version(const Request& e) { reply(c_, e, MessageType::version, wire::VersionReply{c_.options.version, c_.facts.name}); }

void ViewRequests::manifests(const Request& e) { reply(c_, e, MessageType::manifests, c_.options.manifests); }

// ---------------------------------------------------------------- rows

constinit const Verb verbs::query_jobs{.serve = serve<&ViewRequests::jobs>, .rule = kShowJobs};
constinit const Verb verbs::query_tasks{.serve = serve<&ViewRequests::tasks>, .rule = kShowJobs};
constinit const Verb verbs::describe_job{.serve = serve<&ViewRequests::describe>, .rule = kShowJobs};
constinit const Verb verbs::query_task_specs{.serve = serve<&ViewRequests::task_specs>, .rule = kShowJobs};
constinit const Verb verbs::query_status{.serve = serve<&ViewRequests::status>, .rule_of_job = &kOneJob};
constinit const Verb verbs::query_nodes{.serve = serve<&ViewRequests::nodes>};
constinit const Verb verbs::query_version{.serve = serve<&ViewRequests::version>};
constinit const Verb verbs::query_manifests{.serve = serve<&ViewRequests::manifests>};

}  // namespace dtrain::node
