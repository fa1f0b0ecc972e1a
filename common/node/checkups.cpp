#include "common/node/checkups.h"

#include <algorithm>

#include "common/node/cluster_members.h"
#include "common/node/cluster_views.h"
#include "common/node/reply.h"

namespace dtrain::node {
namespace {

using wire::MessageType;

void leave_out_what_is_well(Findings& findings) {
  std::erase_if(findings, [](const wire::Finding& f) { return f.level == "ok"; });
}

std::string seconds(Duration d) { return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(d).count()) + " s"; }

}  // namespace

void Checkups::begin(const Request& e) {
  if (checkups_.size() >= kCheckups)
    return reply_error(c_, e.connection, e.request,
                       {ErrorCode::limit,
                        "could not examine host " + c_.facts.name + ": it is being examined " + std::to_string(kCheckups) +
                            " times already",
                        "try again in a moment"});
  const std::uint64_t token = c_.next_token();
  Checkup checkup;
  checkup.connection = e.connection;
  checkup.request = e.request;
  checkup.began = c_.now.boot;
  std::vector<ExamPeer> peers;
  if (is_relayed(e.connection)) {
    const auto member = relays_.opener(e.connection);
    const auto known = member ? c_.members->table().find(*member) : std::nullopt;
    if (known) peers.push_back(checkup.asker.emplace(ExamPeer{known->identity->name, known->identity->address}));
  } else {
    c_.members->table().each([&](const gossip::MemberView& m) {
      if (m.identity->id.text() == c_.facts.id || m.state == wire::MemberState::left) return;
      const auto facts = host_facts_of(m);
      PeerReport report;
      report.name = m.identity->name;
      report.address = m.identity->address;
      report.state = m.state;
      report.version = facts ? facts->version : "";
      if (wire::in_service(m.state)) {
        checkup.to_ask.push_back(checkup.peers.size());
        peers.push_back({report.name, report.address});
      }
      checkup.peers.push_back(std::move(report));
      checkup.ids.push_back(m.identity->id.text());
    });
  }
  c_.emit(Examine{token, std::move(peers)});
  checkups_[token] = std::move(checkup);
}

std::size_t Checkups::open_questions(std::uint64_t token) const {
  return static_cast<std::size_t>(std::ranges::count_if(questions_, [&](const auto& entry) { return entry.second.token == token; }));
}

void Checkups::ask(std::uint64_t token, Checkup& checkup) {
  for (std::size_t open = open_questions(token); open < kPeersAskedAtOnce && !checkup.to_ask.empty(); ++open) {
    const std::size_t peer = checkup.to_ask.front();
    checkup.to_ask.pop_front();
    const ConnectionId own = c_.next_own();
    const auto part = relays_.open({own, 1, {}, MessageType::query_doctor, wire::encode(wire::Empty{})}, checkup.ids[peer], true);
    if (part)
      questions_[own] = {token, peer, *part, c_.now.boot};
    else
      checkup.peers[peer].error = part.error();
  }
}

void Checkups::examined(const Examined& e) {
  if (const auto found = checkups_.find(e.token); found != checkups_.end()) {
    found->second.seen = e.seen;
    found->second.seen->terms.gpus = c_.facts.gpus;  // with those that fell sick since the agent's start
  }
}

void Checkups::answered(const RelayAnswered& e) {
  const auto question = questions_.find(e.connection);
  if (question == questions_.end()) return;
  const auto message = wire::decode<wire::Message>(e.message);
  if (!message || message->type != MessageType::doctor) return;
  auto reply = wire::decode<wire::DoctorReply>(message->payload);
  if (!reply) return;
  PeerReport& peer = checkups_.at(question->second.token).peers[question->second.peer];
  // It told its time when it answered, which is as long ago as a message takes: up to what is left of the whole.
  const Duration waited = std::max<Duration>(c_.now.boot - question->second.asked - Duration{reply->took_ns}, Duration{});
  peer.doubt = waited / 2;
  peer.ahead = std::chrono::milliseconds(reply->wall_ms) - c_.now.wall.time_since_epoch() + peer.doubt;
  peer.reply = std::move(*reply);
}

void Checkups::settle(Questions::iterator question, std::optional<Error> error) {
  PeerReport& peer = checkups_.at(question->second.token).peers[question->second.peer];
  if (!peer.reply && !error) error = Error{ErrorCode::damaged, "its answer cannot be read", "upgrade all hosts to one version"};
  if (!peer.reply) peer.error = std::move(error);
  questions_.erase(question);
}

void Checkups::ended(const RelayEnded& e) {
  const auto question = std::ranges::find_if(questions_, [&](const auto& entry) { return entry.second.part == e.part; });
  if (question == questions_.end()) return;
  settle(question, e.how == RelayEnded::How::done ? std::nullopt : std::optional(e.error));
}

void Checkups::drop_questions(std::uint64_t token) {
  std::erase_if(questions_, [&](const auto& entry) {
    if (entry.second.token != token) return false;
    relays_.close(entry.second.part);
    return true;
  });
}

void Checkups::closed(ConnectionId connection) {
  std::erase_if(checkups_, [&](const auto& entry) {
    if (entry.second.connection != connection) return false;
    drop_questions(entry.first);
    return true;
  });
}

void Checkups::members_changed() {
  for (auto it = questions_.begin(); it != questions_.end();) {
    const auto at = it++;
    const auto cause = relays_.away(checkups_.at(at->second.token).ids[at->second.peer]);
    if (!cause) continue;
    relays_.close(at->second.part);
    settle(at, cause);
  }
}

void Checkups::drive() {
  for (auto it = questions_.begin(); it != questions_.end();) {
    const auto at = it++;
    if (at->second.asked + kPeerAnswersWithin > c_.now.boot) continue;
    relays_.close(at->second.part);
    settle(at, Error{ErrorCode::unavailable, "within " + seconds(kPeerAnswersWithin) + " nothing came", ""});
  }
  for (auto it = checkups_.begin(); it != checkups_.end();) {
    auto& [token, checkup] = *it;
    const Duration since = c_.now.boot - checkup.began;
    const bool late = since >= kCheckupWithin;
    if (!late) ask(token, checkup);
    const bool examined = checkup.seen.has_value() || since >= kExamineWithin;
    if (!late && (!examined || !checkup.to_ask.empty() || open_questions(token) != 0)) {
      ++it;
      continue;
    }
    drop_questions(token);
    finish(checkup);
    it = checkups_.erase(it);
  }
}

Instant Checkups::deadline() const {
  Instant next = kNever;
  for (const auto& [own, question] : questions_) next = std::min(next, question.asked + kPeerAnswersWithin);
  for (const auto& [token, checkup] : checkups_) {
    const bool hangs = !checkup.seen && c_.now.boot >= checkup.began + kExamineWithin;
    next = std::min(next, checkup.began + (checkup.seen || hangs ? kCheckupWithin : kExamineWithin));
  }
  return next;
}

// Where others see this node come from, when it is not where it says that it is.
std::optional<wire::Finding> Checkups::seen_elsewhere() const {
  const auto& events = c_.members->local_events();
  const auto last = std::find_if(events.rbegin(), events.rend(), [&](const wire::EventView& e) {
    return e.type == "network.address-mismatch" && e.object == c_.facts.name;
  });
  if (last == events.rend()) return std::nullopt;
  const std::size_t cure = last->reason.find("; ");
  return wire::Finding{"addresses", c_.facts.name, "warn", last->reason.substr(0, cure),
                       cure == std::string::npos ? "set network.advertise" : last->reason.substr(cure + 2)};
}

// Of what only the cluster as a whole has.
Findings Checkups::of_cluster() const {
  const std::string& name = c_.facts.name;
  if (const std::string waiting = c_.members->waiting_for(); !waiting.empty())
    return {{"cluster", name, "bad", "this host belongs to no cluster: it waits for " + waiting,
             "see that network.join names hosts of the cluster whose agents run, and that all have the same key; a new cluster begins with "
             "--found or --expect N"}};
  if (c_.storage_failed)
    return {{"cluster", name, "bad", "the agent's disk failed, and it decides nothing any more",
             "see the agent's log, mend the disk, restart the agent; running tasks are not touched"}};
  if (without_leader(c_))
    return {{"cluster", name, "bad", "no coordinator is known: jobs are neither taken nor healed",
             "start the agents of the voters that are missing (dtrainctl status, dtrainctl nodes); where they are lost for good: "
             "dtrainctl recover-quorum"}};
  const auto holder = ledger_holder(c_);
  return {{"cluster", name, "ok", "belongs to " + c_.options.cluster_name + (holder ? ", coordinated by " + holder->name : ""), ""}};
}

void Checkups::finish(const Checkup& checkup) {
  wire::DoctorReply r;
  if (checkup.seen) {
    r.findings = examine_host(*checkup.seen);
  } else {
    r.findings.push_back({"host", c_.facts.name, "bad", "it could not be examined within " + seconds(kExamineWithin),
                          "a disk or a name server hangs: see df, and dmesg, there"});
  }
  if (auto elsewhere = seen_elsewhere()) r.findings.push_back(std::move(*elsewhere));
  if (!is_relayed(checkup.connection)) {
    for (wire::Finding& finding : of_cluster()) r.findings.push_back(std::move(finding));
    Examination nothing;
    nothing.terms.name = c_.facts.name;
    for (wire::Finding& finding : examine_peers(checkup.seen ? *checkup.seen : nothing, c_.options.version, checkup.peers))
      r.findings.push_back(std::move(finding));
  } else {
    leave_out_what_is_well(r.findings);
    if (checkup.seen && checkup.asker) r.sight = sight_of(*checkup.seen, *checkup.asker);
  }
  const std::size_t most = is_relayed(checkup.connection) ? kPeerFindings : kFindings;
  if (r.findings.size() > most) leave_out_what_is_well(r.findings);
  if (r.findings.size() > most) {
    const std::string more = std::to_string(r.findings.size() - most) + " more findings are left out";
    r.findings.resize(most);
    r.findings.push_back({"host", c_.facts.name, "warn", more, "mend those that are said, or run dtrainctl doctor on this very host"});
  }
  r.wall_ms = c_.now.wall.time_since_epoch().count();
  r.took_ns = (c_.now.boot - checkup.began).count();
  reply(c_, checkup.connection, checkup.request, MessageType::doctor, r);
}

}  // namespace dtrain::node
