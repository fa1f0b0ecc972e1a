#include "common/node/stream_requests.h"

#include <algorithm>

#include "common/job/framework.h"
#include "common/node/cluster_members.h"
#include "common/node/reply.h"
#include "common/node/serve.h"

namespace dtrain::node {

using cluster::JobRecord;
using wire::MessageType;

namespace {
constexpr std::size_t kProgramBytes = 256;  // of the name of the program that exec runs, in the event

// `rank`: as in wire::LogsRequest. "": the task has it.
std::string lacks_rank(const JobRecord& job, const TaskId& task, std::uint32_t rank) {
  const auto role = job.spec.roles.find(task.role);
  const std::uint32_t has = role == job.spec.roles.end() ? 0 : role->second.nproc_per_node;
  if (rank == 0) return "";
  if (has > 0 && !job::rules_of(job.spec.framework).starts_ranks(job.spec, role->second))
    return "the command of task " + task.text() + " starts its ranks itself, as one process with one log";
  if (rank <= has) return "";
  return "task " + task.text() +
         (has > 0 ? " has ranks 0 to " + std::to_string(has - 1) + ", counted within the task (LOCAL_RANK)"
                  : " has no ranks of its own (nprocPerNode)");
}

}  // namespace

void StreamRequests::watch(const Request& e, const wire::WatchRequest& q) {
  const JobRecord* job = q.id != 0 ? c_.ledger.find(q.id) : callers_.find_job(e, q.job);
  if (job == nullptr && q.id == 0) return;
  streams_.watch(e.connection, e.request, q, job ? job->id : q.id);
}

void StreamRequests::events(const Request& e, const wire::EventsRequest& q) {
  const JobRecord* job = q.job.empty() ? nullptr : callers_.find_job(e, q.job);
  if (q.job.empty() || job != nullptr) streams_.follow_events(e.connection, e.request, q, job ? job->id : 0);
}

bool StreamRequests::refuse_for_host(const Request& e, const std::string& could_not, const NodeId& node) {
  if (node == c_.facts.id) return false;
  const auto id = MemberId::parse(node);
  const auto member = id ? c_.members->table().find(*id) : std::nullopt;
  const std::string name = member ? member->identity->name : node;
  reply_error(c_, e, {ErrorCode::refused, could_not + ": its tasks are on host " + name, "use dtrainctl on that host"});
  return true;
}

void StreamRequests::logs(const Request& e, const wire::LogsRequest& q, const Caller& caller) {
  const JobRecord* job = callers_.permitted_job(e, q.job, caller, Deed::read, "read the logs of");
  if (job == nullptr) return;
  const auto is_task = [&](const auto& t) { return t.first.text() == q.task; };
  const bool known =
      q.task.empty() || job->generation == 0 || std::ranges::any_of(job->former_tasks, is_task) || std::ranges::any_of(job->tasks, is_task);
  if (!known)
    return reply_error(c_, e,
                       {ErrorCode::not_found, "could not read logs: job " + q.job + " has no task " + q.task, "dtrainctl tasks " + q.job});
  const auto task = std::ranges::find_if(job->tasks, is_task);
  if (task != job->tasks.end())
    if (const std::string lacks = lacks_rank(*job, task->first, q.rank); !lacks.empty())
      return reply_error(c_, e,
                         {ErrorCode::not_found, "could not read logs: " + lacks,
                          "a rank is counted within its task (LOCAL_RANK); without --rank the log of the task has all"});
  if (!caller.relayed_by && host_logs_.wanted(q, *job)) return host_logs_.open(e.connection, e.request, caller, q, job->id);
  streams_.open_log(e.connection, e.request, q, job->id);
}

void StreamRequests::exec(const Request& e, const wire::ExecRequest& q, const Caller& caller) {
  const JobRecord* job = callers_.permitted_job(e, q.job, caller, Deed::enter, "run a command in");
  if (job != nullptr) run(e, q, caller, *job, MessageType::exec);
}

// The job is the caller's own, whatever the request says. Judged by the agent that the task is connected to, and again by the one that
// has the other task.
void StreamRequests::launch(const Request& e, const wire::ExecRequest& q, const Caller& caller) {
  const std::string could_not = "could not launch a program in " + q.job + " " + q.task;
  const auto refuse = [&](const std::string& cause, const std::string& next) {
    callers_.forbid(e, caller, {ErrorCode::refused, could_not + ": " + cause, next});
  };
  if (!caller.inside) return refuse("the request does not come from inside a task", "dtrainctl exec runs a command in a task");
  const JobRecord* job = c_.ledger.find(caller.inside->job);
  if (job == nullptr || job->spec.name != q.job || !owns(caller, *job))
    return refuse("a task may do so in its own job only", "call dtrainctl exec from a login shell");
  if (job->generation != caller.inside->generation)
    return refuse("it comes from generation " + std::to_string(caller.inside->generation) + ", and the job is in generation " +
                      std::to_string(job->generation),
                  "what is left of an earlier generation may start nothing");
  run(e, q, caller, *job, MessageType::launch);
}

void StreamRequests::run(const Request& e, const wire::ExecRequest& q, const Caller& caller, const JobRecord& job, MessageType verb) {
  const bool launches = verb == MessageType::launch;
  const auto task = std::ranges::find_if(job.tasks, [&](const auto& t) { return t.first.text() == q.task; });
  const std::string could_not =
      std::string("could not ") + (launches ? "launch a program in " : "run a command in ") + q.job + " " + q.task;
  const auto refuse = [&](ErrorCode code, const std::string& cause) {
    reply_error(c_, e, {code, could_not + ": " + cause, "dtrainctl tasks " + q.job});
  };
  if (task == job.tasks.end()) return refuse(ErrorCode::not_found, "no such task");
  if (const std::string lacks = lacks_rank(job, task->first, q.rank); !lacks.empty()) return refuse(ErrorCode::not_found, lacks);
  if (task->second.pid == 0) return refuse(ErrorCode::refused, "it does not run");
  const NodeId& host = task->second.place.node;
  if (host != c_.facts.id && !caller.relayed_by)
    return relays_.pass_on({e.connection, e.request, caller, verb, wire::encode(q)}, host, could_not);
  if (refuse_for_host(e, could_not, host)) return;  // it was moved meanwhile
  // Only the program: its arguments may hold secrets.
  std::vector<cluster::EventField> details{{"job", q.job}, {"task", q.job + "/" + q.task}};
  if (launches) details.push_back({"from", q.job + "/" + caller.inside->task.text()});
  callers_.audit(verb, caller, launches ? "launch" : "exec", q.job + "/" + q.task,
                 q.command.empty() ? "" : q.command.front().substr(0, kProgramBytes), std::move(details));
  c_.emit(OpenExec{e.connection, e.request, {job.id, job.generation, task->first}, wire::encode(q), launches});
}

void StreamRequests::cancel(const Request& e, const wire::CancelRequest& q) {
  streams_.cancel(e.connection, q.request_to_end);
  host_logs_.cancel(e.connection, q.request_to_end);
  relays_.cancel(e.connection, q.request_to_end);
}

// ---------------------------------------------------------------- rows

constinit const Verb verbs::watch{.serve = serve<&StreamRequests::watch>, .rule = kShowJobs};
constinit const Verb verbs::query_events{
    .serve = serve<&StreamRequests::events>, .rule = {Needs::no_old_copy, "show events"}, .rule_of_job = &kOneJob};
constinit const Verb verbs::logs{.serve = serve<&StreamRequests::logs>, .rule = {Needs::current_copy, "read logs", PassedOn::to_host}};
constinit const Verb verbs::exec{.serve = serve<&StreamRequests::exec>,
                                 .rule = {Needs::current_copy, "run a command in a task", PassedOn::to_host},
                                 .audit = Audit::event};
constinit const Verb verbs::launch{.serve = serve<&StreamRequests::launch>,
                                   .rule = {Needs::current_copy, "launch a program in a task", PassedOn::to_host},
                                   .audit = Audit::event,
                                   .from_task = true};
constinit const Verb verbs::cancel_request{.serve = serve<&StreamRequests::cancel>, .rule = kOtherHosts};

}  // namespace dtrain::node
