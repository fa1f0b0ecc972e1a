// Prints what is wrong, each with its cure. The agent knows that about itself and the others; if no agent answers,
// this program examines this host with the rights of its user.
#include <algorithm>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "agent/dtraind/exam_terms.h"
#include "agent/host/doctor_facts.h"
#include "common/json/answers.h"
#include "common/node/doctor.h"

namespace dtrain::ctl {
namespace {

using Findings = std::vector<wire::Finding>;

bool any_bad(const Findings& findings) {
  return std::ranges::any_of(findings, [](const wire::Finding& f) { return f.level == "bad"; });
}

Findings look_here(const std::string& config_file, const wire::ErrorItem& why) {
  daemon::LoadedConfig loaded;
  Findings findings;
  auto read = daemon::load_config(config_file, {});
  if (read) loaded = std::move(*read);
  // Nothing in an invalid configuration file is used.
  node::ExamTerms terms = daemon::exam_terms(loaded.errors.empty() ? loaded.config : daemon::Config{});
  terms.agent = false;
  findings.push_back(
      {"agent", terms.name, "bad", why.message, "start it: systemctl start dtraind; journalctl -u dtraind says why it ended"});
  const char* elsewhere = "give the agent's configuration with --config FILE";
  if (!read)
    findings.push_back({"config", terms.name, "bad", read.error().message, read.error().next.empty() ? elsewhere : read.error().next});
  for (const job::FileError& error : loaded.errors) findings.push_back({"config", terms.name, "bad", error.text(), "correct the file"});
  if (read && loaded.errors.empty()) findings.push_back({"config", terms.name, "ok", "can be read", ""});
  host::DoctorOptions options;
  options.terms = std::move(terms);
  for (wire::Finding& finding : node::examine_host(host::examine(options))) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace

int cmd_doctor(Session& session, const DoctorOptions& options) {
  const auto show = [&](const Findings& findings) {
    session.show(json::of(findings), [&] { return findings_text(findings, session.layout()); });
  };
  const auto reply = session.ask<wire::DoctorReply>(wire::MessageType::query_doctor, wire::Empty{}, wire::MessageType::doctor);
  if (reply) {
    show(reply->findings);
    return any_bad(reply->findings) ? kJobFailed : kDone;
  }
  // Another machine cannot be examined from here.
  if (reply.error().code() != ErrorCode::unavailable || net::is_host_and_port(session.globals.agent.at))
    return session.report(reply.error());
  session.note("no agent answers: what follows is this host alone, as it looks to this program");
  show(look_here(options.config, reply.error().items.front()));
  return kUnreachable;
}

}  // namespace dtrain::ctl
