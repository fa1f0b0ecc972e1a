// cancel, suspend, resume, restart, scale, delete, rerun: one request each, which may safely be sent twice.
#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/stream.h"
#include "agent/dtrainctl/upload.h"
#include "common/json/answers.h"

namespace dtrain::ctl {
namespace {

std::string done_text(const wire::ActionRequest& r) {
  switch (r.action) {
    case wire::Action::cancel: return "job " + r.job + ": cancelled";
    case wire::Action::suspend: return "job " + r.job + ": suspended";
    case wire::Action::resume: return "job " + r.job + ": resumed";
    case wire::Action::restart: return r.task.empty() ? "job " + r.job + ": restarted" : "task " + r.job + "/" + r.task + ": restarted";
    case wire::Action::scale: return "job " + r.job + ": " + r.role + " = " + std::to_string(r.replicas);
    case wire::Action::remove: return "job " + r.job + ": is being deleted";
    case wire::Action::rerun: return "job " + r.job + ": runs again";
  }
  return "";
}

Outcome<void> act(Session& session, wire::ActionRequest request, const std::string& package_dir) {
  request.request_id = make_request_id();
  if (request.action == wire::Action::rerun) {
    auto reply = session.change<wire::SubmitReply>(wire::MessageType::action, request, wire::MessageType::submitted);
    if (!reply) return failed(reply.error());
    session.warn(reply->warnings);
    session.show(json::of(*reply), [&] { return reply->name + "\n"; });
    return {};
  }
  auto reply = with_package(session, package_dir, [&](const Upload& package) {
    request.package_digest = package.digest;
    return session.change<wire::Empty>(wire::MessageType::action, request, wire::MessageType::ok,
                                       package.digest.empty() ? kAnswerTime : kPackageTime);
  });
  if (!reply) return failed(reply.error());
  session.note(done_text(request));
  return {};
}

// The job that has the name; nullopt: none.
Outcome<std::optional<std::uint64_t>> id_of(const Session& session, const std::string& name) {
  const auto jobs =
      session.ask_surely<wire::JobsReply>(wire::MessageType::query_jobs, wire::JobsRequest{name, {}, "", ""}, wire::MessageType::jobs);
  if (!jobs && jobs.error().code() == ErrorCode::not_found) return std::nullopt;
  if (!jobs) return failed(jobs.error());
  return jobs->jobs.empty() ? std::nullopt : std::optional(jobs->jobs.front().id);
}

// Waits until nothing of it is left, when another job may have its name. What it still waits for is printed when that
// changes, at most once in kWatchPause.
int wait_until_gone(Session& session, const std::string& name, std::uint64_t id) {
  const Deadline deadline = session.answer_deadline(std::nullopt);
  Stream watch(
      session,
      [id](Connection& connection) {
        wire::WatchRequest request;
        request.id = id;
        connection.send(wire::MessageType::watch, request);
      },
      true);
  if (auto started = watch.start(); !started && !started.error().lost) return session.report(started.error());
  Deadline say_at = Clock::now() + kWatchPause;
  std::string left, said;
  while (true) {
    auto messages = watch.turn();
    if (!messages) return session.report(messages.error());
    for (const wire::Message& message : *messages) {
      auto update = Connection::read<wire::JobUpdate>(message, wire::MessageType::update);
      if (!update) return session.report(update.error());
      if (update->gone) return session.note("job " + name + ": deleted"), kDone;
      std::size_t count = 0;
      for (const wire::TaskView& task : update->tasks) count += task.pid != 0 || task.state == "Stopping" ? 1 : 0;
      left = count == 0 ? "is being removed" : std::to_string(count) + (count == 1 ? " task ends" : " tasks end");
      if (!update->waiting_for.empty()) left += ": " + update->waiting_for;
    }
    const auto now = Clock::now();
    if (now >= deadline) {
      session.note("job " + name + " is not gone in time: " + left + "; dtrainctl wait " + name + " --for deleted goes on");
      return kWaitTimedOut;
    }
    if (now >= say_at && left != said) {
      session.note("job " + name + ": " + left);
      said = left;
      say_at = now + kWatchPause;
    }
    std::vector<pollfd> none;
    wait_for({&watch}, none, left == said ? deadline : std::min(deadline, std::max(say_at, now)));
  }
}

int remove_job(Session& session, wire::ActionRequest request) {
  request.request_id = make_request_id();
  const auto connection = session.connect_to_restarting(session.answer_deadline());
  if (!connection) return session.report(connection.error());
  const auto id = id_of(session, request.job);
  if (!id) return session.report(id.error());
  auto reply = session.change<wire::Empty>(wire::MessageType::action, request, wire::MessageType::ok);
  if (!reply) return session.report(reply.error());
  return *id ? wait_until_gone(session, request.job, **id) : kDone;
}

}  // namespace

int cmd_action(Session& session, const ActionOptions& options) {
  wire::ActionRequest request = options.request;
  if (request.action == wire::Action::remove && !options.no_wait) return remove_job(session, request);
  if (request.action != wire::Action::scale) {
    auto done = act(session, request, options.package_dir);
    return done ? kDone : session.report(done.error());
  }
  for (const auto& [role, replicas] : options.scale) {
    request.role = role;
    request.replicas = replicas;
    if (auto done = act(session, request, ""); !done) return session.report(done.error());
  }
  return kDone;
}

}  // namespace dtrain::ctl
