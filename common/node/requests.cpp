#include "common/node/requests.h"

#include <algorithm>

#include "common/base/limits.h"
#include "common/job/manifest.h"
#include "common/node/cluster_views.h"
#include "common/node/host_capacities.h"
#include "common/node/reply.h"
#include "common/node/views.h"

namespace dtrain::node {
namespace {

using cluster::JobRecord;
using wire::MessageType;

Error storage_error() {
  return {ErrorCode::unavailable, "could not change the cluster's state: the agent's disk failed",
          "see the agent's log, mend the disk, restart the agent; running tasks are not touched"};
}

}  // namespace

template <class T>
void Requests::answer(const Request& e, MessageType type, const T& payload) {
  reply(c_, e.connection, e.request, type, payload);
}

void Requests::refuse(const Request& e, const Error& error) {
  reply_error(c_, e.connection, e.request, error);
}

void Requests::closed(ConnectionId connection) {
  callers_.erase(connection);
  streams_.closed(connection);
  host_logs_.closed(connection);
  relays_.closed(connection);
  packages_.closed(connection);
  checkpoints_.closed(connection);
  checkups_.closed(connection);
  std::erase_if(verifications_, [&](const Verification& v) { return v.connection == connection; });
  std::erase_if(leaving_, [&](const Leaving& l) { return l.connection == connection; });
  for (Recovering& r : recovering_)
    if (r.connection == connection) r.connection = 0;  // the recovery is carried out all the same
  std::erase_if(waiting_, [&](const Waiting& w) { return w.request.connection == connection; });
  if (std::erase_if(departures_, [&](const Departure& d) { return d.connection == connection; }) != 0)
    seats_.leave(!departures_.empty());
  for (auto& [index, p] : pending_)
    if (p.connection == connection) p.connection = 0;  // its command may commit all the same
}

void Requests::handle(const Request& e) {
  const auto caller = callers_.find(e.connection);
  if (caller == callers_.end()) return;  // closed in the same turn
  auto message = wire::decode<wire::Message>(e.body);
  if (!message) return refuse(e, message.error());
  dispatch(e, *message, caller->second);
}

namespace {

// Decodes the payload and calls the handler, or refuses with the error.
template <class T, class Handler, class Refuse>
void with(const wire::Message& m, Handler handler, Refuse refuse) {
  auto payload = wire::decode<T>(m.payload);
  if (payload)
    handler(*payload);
  else
    refuse(payload.error());
}

}  // namespace

void Requests::dispatch(const Request& e, const wire::Message& m, const Caller& caller) {
  if (refuse_relayed(e, m) || answer_elsewhere(e, m, caller) || wait_until_current(e, m, caller)) return;
  const auto wrong = [&](const Error& error) { refuse(e, error); };
  switch (m.type) {
    case MessageType::submit:
      return with<wire::SubmitRequest>(
          m, [&](const auto& q) { submit(e, q, caller); }, wrong);
    case MessageType::plan:
      return with<wire::SubmitRequest>(
          m, [&](const auto& q) { plan(e, q, caller); }, wrong);
    case MessageType::action:
      return with<wire::ActionRequest>(
          m, [&](const auto& q) { action(e, q, caller); }, wrong);
    case MessageType::exec:
      return with<wire::ExecRequest>(
          m, [&](const auto& q) { exec(e, q, caller); }, wrong);
    case MessageType::query_checkpoints:
      return with<wire::CheckpointsRequest>(
          m, [&](const auto& q) { checkpoints(e, q, caller); }, wrong);
    case MessageType::put_blob:
      return with<wire::PutBlobRequest>(
          m,
          [&](const auto& q) {
            if (const Status may = may_submit(caller); !may) return forbid(e, caller, may.error());
            if (q.bytes.size() > limits::kBlobChunkBytes || q.offset + q.bytes.size() > limits::kPackageBytes)
              return refuse(e, {ErrorCode::limit,
                                "could not store package: it is larger than " +
                                    std::to_string(limits::kPackageBytes >> 20) + " MiB",
                                "leave data out of the package and mount it on the hosts"});
            c_.emit(WriteBlob{e.connection, e.request, q.offset, q.bytes, q.last, q.digest});
            if (!q.last) answer(e, MessageType::ok, wire::Empty{});
          },
          wrong);
    case MessageType::ask_checkpoint:
      return with<wire::CheckpointQuestion>(
          m, [&](const auto& q) { checkpoints_.asked(e, q); }, wrong);
    case MessageType::get_checkpoint:
      return with<wire::GetCheckpointRequest>(
          m, [&](const auto& q) { copies_.send(e, q); }, wrong);
    case MessageType::get_blob:
      return with<wire::GetBlobRequest>(
          m, [&](const auto& q) { c_.emit(SendBlob{e.connection, e.request, q.digest, q.offset}); }, wrong);
    case MessageType::keep_blob:
      return with<wire::KeepBlobRequest>(
          m, [&](const auto& q) { packages_.keep(e, q); }, wrong);
    default:
      return query(e, m, caller);
  }
}

// Reading verbs: answered from what this node knows, with or without a coordinator.
void Requests::query(const Request& e, const wire::Message& m, const Caller& caller) {
  const auto wrong = [&](const Error& error) { refuse(e, error); };
  const bool stale = without_leader(c_) || c_.storage_failed;
  switch (m.type) {
    case MessageType::query_doctor:
      return checkups_.begin(e, caller);
    case MessageType::query_version:
      return answer(e, MessageType::version, wire::VersionReply{c_.options.version, c_.facts.name});
    case MessageType::query_jobs:
      return with<wire::JobsRequest>(
          m,
          [&](const wire::JobsRequest& q) {
            wire::JobsReply r;
            r.stale = stale;
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
            if (!q.job.empty() && r.jobs.empty()) {
              find_job(e, q.job);
              return;
            }
            answer(e, MessageType::jobs, r);
          },
          wrong);
    case MessageType::query_tasks:
      return with<wire::JobName>(
          m,
          [&](const auto& q) {
            if (const JobRecord* job = find_job(e, q.job))
              answer(e, MessageType::tasks, wire::TasksReply{task_views(c_, *job), stale});
          },
          wrong);
    case MessageType::describe_job:
      return with<wire::JobName>(
          m, [&](const auto& q) { describe(e, q.job, caller); }, wrong);
    case MessageType::query_status:
      return with<wire::JobName>(
          m,
          [&](const auto& q) {
            if (!q.job.empty()) return describe(e, q.job, caller);
            answer(e, MessageType::status, status_view(c_));
          },
          wrong);
    case MessageType::query_nodes:
      return with<wire::NodeName>(
          m, [&](const auto& q) { nodes(e, q); }, wrong);
    case MessageType::leave:
      return with<wire::LeaveRequest>(
          m, [&](const auto& q) { leave(e, q, caller); }, wrong);
    case MessageType::form:
      return with<wire::FormRequest>(
          m, [&](const auto& q) { form(e, q, caller); }, wrong);
    case MessageType::drain:
      return with<wire::DrainRequest>(
          m, [&](const auto& q) { drain(e, q, caller); }, wrong);
    case MessageType::recover_quorum:
      return with<wire::RecoverRequest>(
          m, [&](const auto& q) { recover_quorum(e, q, caller); }, wrong);
    case MessageType::query_events:
      return with<wire::EventsRequest>(
          m,
          [&](const auto& q) {
            const JobRecord* job = q.job.empty() ? nullptr : find_job(e, q.job);
            if (q.job.empty() || job != nullptr)
              streams_.follow_events(e.connection, e.request, q, job ? job->id : 0);
          },
          wrong);
    case MessageType::query_task_specs:
      return with<wire::TaskSpecsRequest>(
          m,
          [&](const auto& q) {
            const JobRecord* job = permitted_job(e, q.job, caller, Deed::read, "show the cluster spec of");
            if (job == nullptr) return;
            auto views = task_spec_views(c_, *job, q.task);
            if (!views) return refuse(e, views.error());
            if (views->empty())
              return refuse(e,
                            {ErrorCode::not_found,
                             "could not show the cluster spec of " + q.job + " " + q.task + ": " +
                                 (job->generation == 0 ? "it has no generation yet" : "it has no such task"),
                             "dtrainctl tasks " + q.job});
            answer(e, MessageType::task_specs, wire::TaskSpecsReply{std::move(*views), {}, ""});
          },
          wrong);
    case MessageType::watch:
      return with<wire::WatchRequest>(
          m,
          [&](const auto& q) {
            const JobRecord* job = q.id != 0 ? c_.ledger.find(q.id) : find_job(e, q.job);
            if (job == nullptr && q.id == 0) return;
            streams_.watch(e.connection, e.request, q, job ? job->id : q.id);
          },
          wrong);
    case MessageType::logs:
      return with<wire::LogsRequest>(
          m,
          [&](const auto& q) { logs(e, q, caller); }, wrong);
    case MessageType::cancel_request:
      return with<wire::CancelRequest>(
          m, [&](const auto& q) { cancel_request(e, q); }, wrong);
    default:
      refuse(e, {ErrorCode::invalid, "could not answer request: its type is not known here",
                 "use a dtrainctl of the agent's version"});
  }
}

const JobRecord* Requests::find_job(const Request& e, const std::string& name) {
  if (const JobRecord* job = c_.ledger.find(name)) return job;
  std::vector<std::string> names;
  for (const auto& [id, job] : c_.ledger.state().jobs) names.push_back(job.spec.name);
  const std::string near = job::nearest(name, names);
  refuse(e, {ErrorCode::not_found, "could not find job " + name + ": there is none of that name",
             near.empty() ? "dtrainctl jobs" : "did you mean " + near + "?"});
  return nullptr;
}

void Requests::describe(const Request& e, const std::string& name, const Caller& caller) {
  if (const JobRecord* job = find_job(e, name))
    answer(e, MessageType::description, description(c_, *job, coordinator_.waiting_for(job->id),
                                                permit(Deed::read, caller, role_of(caller), *job, "").has_value()));
}

Result<job::JobSpec> Requests::checked_spec(const Request& e, const std::string& bytes,
                                            const Caller& caller) {
  if (Status may = may_submit(caller); !may) {
    forbid(e, caller, may.error());
    return fail(may.error());
  }
  auto spec = wire::decode_strictly<job::JobSpec>(bytes);
  if (!spec) {
    refuse(e, {ErrorCode::invalid, "could not read the job's description: " + spec.error().message,
               "this host's dtrain may be older than dtrainctl: dtrainctl version says both"});
    return fail(spec.error());
  }
  const auto errors = job::validate(*spec);
  if (errors.empty()) return spec;
  wire::ErrorReply r;
  for (const auto& x : errors)
    r.errors.push_back({ErrorCode::invalid, x.code, x.file, x.line, x.path, x.message, x.next});
  answer(e, MessageType::error, r);
  return fail(ErrorCode::invalid, errors.front().message);
}

bool Requests::room_for_proposal(const Request& e) {
  if (c_.storage_failed) return refuse(e, storage_error()), false;
  if (std::max<std::uint64_t>(c_.replicated->pending(), proposals_.commands()) < limits::kPendingProposals) return true;
  refuse(e, {ErrorCode::unavailable,
             "could not take the request: " + std::to_string(limits::kPendingProposals) +
                 " are waiting for the disk",
             "try again in a moment"});
  return false;
}

void Requests::pend(const MemberId& id, const Request& e, MessageType type, const Caller& caller, std::vector<std::string> warnings) {
  pending_[id] = {e.connection, e.request, type, caller, std::move(warnings)};
}

void Requests::submit(const Request& e, const wire::SubmitRequest& q, const Caller& caller) {
  const auto spec = checked_spec(e, q.spec, caller);
  if (!spec || !room_for_proposal(e)) return;
  if (q.spec.size() > limits::kLedgerEntryBytes)
    return refuse(
        e, {ErrorCode::limit, "could not submit job: its description is too large", "move data out of it"});
  if (refuse_package(e, caller, spec->package_digest, "could not submit job")) return;
  const cluster::SubmitJob command{q.spec, {caller.user, caller.uid}, q.request_id, q.replace, c_.facts.id, asker(caller)};
  const std::uint32_t needs = std::max(wire::needed_version(command), wire::needed_version(*spec));
  if (const Status may = versions_.may_propose(needs, "could not submit job " + spec->name); !may) return refuse(e, may.error());
  if (!packages_.spread(e, spec->package_digest, "could not submit job")) return;
  const MemberId id = proposals_.add(cluster::CommandType::submit, command);
  if (c_.options.broken_rule != "ack-after-commit") return pend(id, e, MessageType::submit, caller, place_warnings(c_, *spec));
  // For the simulator: answers before the disk has the entry.
  answer(e, MessageType::submitted,
         wire::SubmitReply{spec->name, c_.replicated->raft().last_index() + 1, 0, false, {}});
}

void Requests::plan(const Request& e, const wire::SubmitRequest& q, const Caller& caller) {
  auto spec = checked_spec(e, q.spec, caller);
  if (!spec) return;
  cluster::JobRecord job;
  job.spec = std::move(*spec);
  if (job.spec.name.empty()) job.spec.name = job.spec.generate_name + "0";
  job.user = {caller.user, caller.uid};
  job.generation = 1;
  wire::TaskSpecsReply r;
  const auto placed = coordinator_.try_place(job.spec);
  if (!placed) {
    r.waiting_for = placed.error().message;
    return answer(e, MessageType::task_specs, r);
  }
  for (const auto& p : *placed) job.tasks[p.task].place = p;
  auto views = task_spec_views(c_, job, "");
  if (!views) return refuse(e, views.error());
  r.tasks = std::move(*views);
  answer(e, MessageType::task_specs, r);
}

void Requests::action(const Request& e, const wire::ActionRequest& q, const Caller& caller) {
  static constexpr const char* kVerbs[] = {"cancel", "suspend", "resume", "restart",
                                           "scale",  "delete",  "rerun"};
  // Another package is code that would run as the job's user.
  const Deed deed = q.package_digest.empty() ? Deed::change : Deed::enter;
  const JobRecord* job = permitted_job(e, q.job, caller, deed, kVerbs[static_cast<int>(q.action)]);
  if (job == nullptr || !room_for_proposal(e)) return;
  if (refuse_package(e, caller, q.package_digest, "could not restart job " + q.job + " with another package")) return;
  cluster::JobAction a;
  a.kind = static_cast<cluster::ActionKind>(q.action);
  a.job = job->id;
  a.user = caller.user;
  a.role = q.role;
  a.replicas = q.replicas;
  a.force = q.force;
  a.from_scratch = q.from_scratch;
  a.package_digest = q.package_digest;
  a.package_host = c_.facts.id;
  a.request_id = q.request_id;
  a.asker = asker(caller);
  if (!q.task.empty()) {
    const auto dash = q.task.rfind('-');
    const auto task = std::find_if(job->tasks.begin(), job->tasks.end(),
                                   [&](const auto& t) { return t.first.text() == q.task; });
    if (dash == std::string::npos || task == job->tasks.end())
      return refuse(e, {ErrorCode::not_found,
                        "could not restart task " + q.task + ": job " + q.job + " has no such task",
                        "dtrainctl tasks " + q.job});
    // A host that is away carries out no action.
    if (const auto away = relays_.away(task->second.place.node); away && !task->second.ended && q.action == wire::Action::restart)
      return refuse(e, {ErrorCode::refused,
                        "could not restart task " + q.task + ": " + away->message,
                        "dtrainctl describe job " + q.job + " says what becomes of it"});
    a.task = task->first;
  }
  if (q.action == wire::Action::scale) {
    job::JobSpec scaled = job->spec;
    const auto role = scaled.roles.find(q.role);
    if (role != scaled.roles.end()) {
      role->second.min_replicas = std::min(role->second.min_replicas, q.replicas);
      role->second.replicas = q.replicas;
      const auto errors = job::validate(scaled);
      if (!errors.empty())
        return refuse(
            e, {ErrorCode::invalid,
                "could not scale job " + q.job + ": " + errors.front().path + ": " + errors.front().message,
                errors.front().next});
    }
  }
  if (const Status may = versions_.may_propose(wire::needed_version(a), std::string("could not ") + kVerbs[static_cast<int>(q.action)] +
                                                                           " job " + q.job);
      !may)
    return refuse(e, may.error());
  const bool rerun = q.action == wire::Action::rerun;
  // Nobody keeps the package of a job that has ended.
  if (!packages_.spread(e, rerun ? job->spec.package_digest : q.package_digest,
                        rerun ? "could not rerun job " + q.job : "could not restart job " + q.job + " with another package"))
    return;
  pend(proposals_.add(cluster::CommandType::action, a), e, rerun ? MessageType::submit : MessageType::action, caller);
}

void Requests::given_up(const MemberId& id) {
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
               "dtrainctl status and dtrainctl nodes show which agents are missing: start them. It may still be carried "
               "out"});
}

void Requests::applied(const cluster::Applied& result) {
  const auto it = result.request.none() ? pending_.end() : pending_.find(result.request);
  if (it == pending_.end()) return;
  const Pending p = std::move(it->second);
  pending_.erase(it);
  if (result.forbidden) note_refusal(p.caller, result.status.error().message);
  if (p.connection == 0) return;
  if (!result.status) return reply_error(c_, p.connection, p.request, result.status.error());
  if (p.type != MessageType::submit)
    return reply(c_, p.connection, p.request, MessageType::ok, wire::Empty{});
  const JobRecord* job = c_.ledger.find(result.job);
  reply(c_, p.connection, p.request, MessageType::submitted,
        wire::SubmitReply{result.name, result.job, job ? job->generation : 0, result.unchanged, p.warnings});
}

void Requests::storage_failed(const Error& error) {
  for (const auto& [index, p] : pending_)
    if (p.connection != 0)
      reply_error(
          c_, p.connection, p.request,
          {ErrorCode::unavailable, "could not make the change durable: " + error.message, error.next});
  pending_.clear();
  for (const Recovering& r : std::exchange(recovering_, {}))
    if (r.connection != 0)
      reply_error(c_, r.connection, r.request,
                  {ErrorCode::unavailable, "could not make the new history durable: " + error.message, error.next});
}

void Requests::blob_written(const BlobWritten& e) {
  if (!e.digest) return reply_error(c_, e.connection, e.request, e.digest.error());
  if (const auto caller = callers_.find(e.connection); caller != callers_.end()) {
    rights_.gave(caller->second, *e.digest);
    audit(caller->second, "package", shown_digest(*e.digest), "", {{"package", shown_digest(*e.digest)}});
  }
  reply(c_, e.connection, e.request, MessageType::blob, wire::BlobReply{true});
}

// A host that has the checkpoint and is in service; otherwise this one, which reports what it does not find.
NodeId Requests::checkpoint_host(const cluster::CheckpointRecord& r) const {
  for (const auto& p : r.places)
    if (p.host == c_.facts.id) return p.host;
  for (const auto& p : r.places)
    if (!relays_.away(p.host)) return p.host;
  return c_.facts.id;
}

void Requests::checkpoints(const Request& e, const wire::CheckpointsRequest& q, const Caller& caller) {
  const JobRecord* job = permitted_job(e, q.job, caller, Deed::read, "list the checkpoints of");
  if (job == nullptr) return;
  Verification v{e.connection, e.request, {checkpoint_views(*job), job->unrecognised}, {}};
  if (q.verify) {
    for (std::size_t i = 0; i < job->checkpoints.size(); ++i) {
      const auto& r = job->checkpoints[i];
      if (r.state != cluster::CheckpointState::complete && r.state != cluster::CheckpointState::verified)
        continue;
      const std::uint64_t token = c_.next_token();
      v.awaited[token] = i;
      checkpoints_.verify(checkpoint_host(r), VerifyCheckpoint{job->id, token, r.info, job->user});
    }
  }
  if (v.awaited.empty())
    return answer(e, MessageType::checkpoints, v.reply);
  verifications_.push_back(std::move(v));
}

bool Requests::verified(const CheckpointVerified& e) {
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
    return true;
  }
  return false;
}

}  // namespace dtrain::node
