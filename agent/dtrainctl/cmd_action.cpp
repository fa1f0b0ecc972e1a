// cancel, suspend, resume, restart, scale, delete, rerun: one request each, safe to send twice.
#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/upload.h"

namespace dtrain::ctl {
namespace {

std::string done_text(const wire::ActionRequest& r) {
  switch (r.action) {
    case wire::Action::cancel: return "job " + r.job + ": cancelled";
    case wire::Action::suspend: return "job " + r.job + ": suspended";
    case wire::Action::resume: return "job " + r.job + ": resumed";
    case wire::Action::restart: return r.task.empty() ? "job " + r.job + ": restarted" : "task " + r.job + "/" + r.task + ": restarted";
    case wire::Action::scale: return "job " + r.job + ": " + r.role + " = " + std::to_string(r.replicas);
    case wire::Action::remove: return "job " + r.job + ": deleted";
    case wire::Action::rerun: return "job " + r.job + ": runs again";
  }
  return "";
}

Outcome<void> act(Session& session, wire::ActionRequest request, const std::string& package_dir) {
  request.request_id = make_request_id();
  if (request.action == wire::Action::rerun) {
    auto reply = session.ask_surely<wire::SubmitReply>(wire::MessageType::action, request, wire::MessageType::submitted);
    if (!reply) return failed(reply.error());
    session.warn(reply->warnings);
    session.show(json_of(*reply), [&] { return reply->name + "\n"; });
    return {};
  }
  auto reply = with_package(session, package_dir, [&](const Upload& package) {
    request.package_digest = package.digest;
    return session.ask_surely<wire::Empty>(wire::MessageType::action, request, wire::MessageType::ok,
                                           package.digest.empty() ? kAnswerTime : kPackageTime);
  });
  if (!reply) return failed(reply.error());
  session.note(done_text(request));
  return {};
}

}  // namespace

int cmd_action(Session& session, const ActionOptions& options) {
  wire::ActionRequest request = options.request;
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
