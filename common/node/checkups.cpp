#include "common/node/checkups.h"

#include <algorithm>
#include <utility>

#include "common/base/duration_text.h"
#include "common/node/cluster_members.h"
#include "common/node/cluster_views.h"
#include "common/node/reply.h"
#include "common/node/serve.h"

namespace dtrain::node {
namespace {

using wire::MessageType;

void leave_out_what_is_well(Findings& findings) {
  std::erase_if(findings, [](const wire::Finding& f) { return f.level == "ok"; });
}

void cut(Findings& findings, std::size_t most, const std::string& node) {
  if (findings.size() <= most) return;
  const std::string more = std::to_string(findings.size() - most) + " more findings are left out";
  findings.resize(most);
  findings.push_back({"host", node, "warn", more, "mend those that are said, or run dtrainctl doctor on this very host"});
}

// Limit for a peer's clock: a larger difference is nonsense, and must not overflow.
constexpr std::int64_t kAheadMost = std::chrono::milliseconds(std::chrono::years(100)).count();

}  // namespace

std::optional<Error> Checkups::full(const Caller& caller) const {
  const bool of_agent = caller.relayed_by.has_value();
  const auto of_lane = std::ranges::count_if(checkups_, [&](const auto& entry) { return entry.second.of_agent == of_agent; });
  const auto of_user = std::ranges::count_if(
      checkups_, [&](const auto& entry) { return !of_agent && !entry.second.of_agent && entry.second.caller.uid == caller.uid; });
  const bool for_them = std::cmp_greater_equal(of_user, kCheckupsOfUser);
  if (!for_them && std::cmp_less(of_lane, of_agent ? kCheckupsOfAgents : kCheckups)) return std::nullopt;
  return Error{ErrorCode::limit,
               "could not examine host " + c_.facts.name + ": it is being examined " + std::to_string(for_them ? of_user : of_lane) +
                   " times already" + (for_them ? " for the same user" : ""),
               "try again in a moment"};
}

void Checkups::begin(const Request& e, const Caller& caller) {
  if (const auto error = full(caller)) return reply_error(c_, e.connection, e.request, *error);
  Checkup checkup;
  checkup.connection = e.connection;
  checkup.request = e.request;
  checkup.caller = caller;
  checkup.began = c_.now.boot;
  checkup.of_agent = caller.relayed_by.has_value();
  if (checkup.of_agent) {
    if (const auto known = c_.members->table().find(*caller.relayed_by))
      checkup.asker = ExamPeer{known->identity->name, known->identity->address};
    checkups_[c_.next_token()] = std::move(checkup);
    return;
  }
  std::vector<ExamPeer> peers;
  c_.members->table().each([&](const gossip::MemberView& m) {
    if (m.identity->id.text() == c_.facts.id || m.state == wire::MemberState::left) return;
    const auto facts = host_facts_of(m);
    PeerReport report;
    report.name = m.identity->name;
    report.address = m.identity->address;
    report.state = m.state;
    report.version = facts ? facts->version : "";
    if (wire::in_service(m.state)) checkup.to_ask.push_back(checkup.peers.size());
    peers.push_back({report.name, report.address});  // also for a member that is gone: an agent may listen there all the same
    checkup.peers.push_back(std::move(report));
    checkup.ids.push_back(m.identity->id.text());
  });
  checkup.examination = c_.next_token();
  c_.emit(Examine{checkup.examination, std::move(peers)});
  checkups_[c_.next_token()] = std::move(checkup);
}

void Checkups::examine_for_agents() {
  if (for_agents_ != 0 && c_.now.boot < for_agents_began_ + kExamineWithin) return;
  std::map<std::string, ExamPeer> askers;
  std::vector<Checkup*> waiting;
  for (auto& [token, checkup] : checkups_) {
    if (checkup.examination != 0) continue;
    waiting.push_back(&checkup);
    if (checkup.asker) askers[checkup.asker->name] = *checkup.asker;
  }
  if (waiting.empty()) return;
  for_agents_ = c_.next_token();
  for_agents_began_ = c_.now.boot;
  std::vector<ExamPeer> peers;
  for (auto& [name, asker] : askers) peers.push_back(std::move(asker));
  for (Checkup* checkup : waiting) checkup->examination = for_agents_;
  c_.emit(Examine{for_agents_, std::move(peers)});
}

std::size_t Checkups::open_questions(std::uint64_t token) const {
  return static_cast<std::size_t>(std::ranges::count_if(questions_, [&](const auto& entry) { return entry.second.token == token; }));
}

void Checkups::ask(std::uint64_t token, Checkup& checkup, std::size_t most) {
  std::size_t open = open_questions(token);
  while (!checkup.to_ask.empty() && open < most && questions_.size() < kPeersAskedAtOnce) {
    const std::size_t peer = checkup.to_ask.front();
    checkup.to_ask.pop_front();
    OwnConnection own = c_.connections.open(*this);
    const Relays::Asked asked{own, 1, checkup.caller, MessageType::query_doctor, wire::encode(wire::Empty{})};
    const auto part = relays_.open(asked, checkup.ids[peer], true);
    if (part) {
      questions_.emplace(asked.connection, Question{token, peer, *part, c_.now.boot, std::move(own)});
      ++open;
    } else {
      checkup.peers[peer].error = part.error();
    }
  }
}

void Checkups::examined(const Examined& e) {
  if (e.token == for_agents_) for_agents_ = 0;
  for (auto& [token, checkup] : checkups_) {
    if (checkup.examination != e.token) continue;
    checkup.unseen = e.error;
    if (e.error) continue;
    checkup.seen = e.seen;
    checkup.seen->terms.gpus = c_.facts.gpus;  // including those that fell sick since the agent's start
    checkup.seen->terms.unfit = c_.facts.unfit;
    checkup.seen->terms.unchecked = c_.facts.unchecked;
    // The agent can look into all processes; a caller who is no operator must not see through it.
    if (role_of(checkup.caller, c_.options.access, c_.options.agent_uid) < Role::operate)
      for (Listener& stranger : checkup.seen->strangers) stranger.owner.clear();
  }
}

void Checkups::relay_answered(const RelayAnswered& e) {
  const auto question = questions_.find(e.connection);
  if (question == questions_.end()) return;
  const auto message = wire::decode<wire::Message>(e.message);
  if (!message || message->type != MessageType::doctor) return;
  PeerReport& peer = checkups_.at(question->second.token).peers[question->second.peer];
  if (message->payload.size() > kPeerAnswerBytes) {
    peer.error = Error{ErrorCode::limit, "its answer has more than " + std::to_string(kPeerAnswerBytes) + " bytes", ""};
    return;
  }
  auto reply = wire::decode<wire::DoctorReply>(message->payload);
  if (!reply) return;
  cut(reply->findings, kPeerFindings + 1, peer.name);  // what is left out here counts as one more finding
  // The peer read its clock when it answered, so its answer is as old as the message's way took: at most the time
  // since the question without the time that the peer took.
  const Duration passed = c_.now.boot - question->second.asked;
  const Duration waited = passed - std::clamp(Duration{reply->took_ns}, Duration{}, passed);
  const std::int64_t here = c_.now.wall.time_since_epoch().count();
  peer.doubt = waited / 2;
  peer.ahead = std::chrono::milliseconds(std::clamp(reply->wall_ms, here - kAheadMost, here + kAheadMost) - here) + peer.doubt;
  peer.reply = std::move(*reply);
}

void Checkups::settle(Questions::iterator question, std::optional<Error> error) {
  PeerReport& peer = checkups_.at(question->second.token).peers[question->second.peer];
  if (!error) error = Error{ErrorCode::damaged, "its answer cannot be read", "upgrade all hosts to one version"};
  if (!peer.reply && !peer.error) peer.error = std::move(error);
  questions_.erase(question);
}

void Checkups::relay_ended(const RelayEnded& e) {
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

// A client's examination goes on and counts until it has ended; otherwise a client that asks and leaves again and
// again could have any number of them.
void Checkups::closed(ConnectionId connection) {
  for (auto& [token, checkup] : checkups_) {
    if (checkup.connection != connection) continue;
    drop_questions(token);
    checkup.to_ask.clear();
    checkup.connection = 0;
  }
  std::erase_if(checkups_, [](const auto& entry) { return entry.second.connection == 0 && entry.second.of_agent; });
}

bool Checkups::is_examined(const Checkup& checkup) const {
  return checkup.seen || checkup.unseen || c_.now.boot - checkup.began >= kExamineWithin;
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

void Checkups::end_turn() {
  for (auto it = questions_.begin(); it != questions_.end();) {
    const auto at = it++;
    if (at->second.asked + kPeerAnswersWithin > c_.now.boot) continue;
    relays_.close(at->second.part);
    settle(at, Error{ErrorCode::unavailable, "within " + duration_text(kPeerAnswersWithin) + " nothing came", ""});
  }
  examine_for_agents();
  const auto asking = std::ranges::count_if(checkups_, [](const auto& entry) { return !entry.second.to_ask.empty(); });
  const std::size_t share = kPeersAskedAtOnce / std::max<std::size_t>(1, static_cast<std::size_t>(asking));
  for (auto it = checkups_.begin(); it != checkups_.end();) {
    auto& [token, checkup] = *it;
    const bool late = c_.now.boot - checkup.began >= kCheckupWithin;
    if (!late) ask(token, checkup, share);
    if (!late && (!is_examined(checkup) || !checkup.to_ask.empty() || open_questions(token) != 0)) {
      ++it;
      continue;
    }
    drop_questions(token);
    if (checkup.connection != 0) finish(checkup);
    it = checkups_.erase(it);
  }
}

Instant Checkups::deadline() const {
  Instant next = kNever;
  for (const auto& [own, question] : questions_) next = std::min(next, question.asked + kPeerAnswersWithin);
  for (const auto& [token, checkup] : checkups_) {
    next = std::min(next, checkup.began + (is_examined(checkup) ? kCheckupWithin : kExamineWithin));
    if (checkup.examination == 0) next = std::min(next, for_agents_began_ + kExamineWithin);
  }
  return next;
}

// Reports the address at which other members see this node, if it is not the one that this node advertises.
std::optional<wire::Finding> Checkups::seen_elsewhere() const {
  const std::string at = c_.members->table().seen_elsewhere();
  if (at.empty()) return std::nullopt;
  const auto id = MemberId::parse(c_.facts.id);
  const auto self = id ? c_.members->table().find(*id) : std::nullopt;
  return wire::Finding{"addresses", c_.facts.name, "warn",
                       "peers see this node at " + at + (self ? ", it advertises " + self->identity->address.ip : ""),
                       "set network.advertise to the address that others reach it by"};
}

// Findings about the cluster as a whole.
Findings Checkups::of_cluster() const {
  const std::string& name = c_.facts.name;
  if (const std::string waiting = c_.members->waiting_for(); !waiting.empty())
    return {{"cluster", name, "bad", "this host belongs to no cluster: it waits for " + waiting,
             "see that network.join names hosts of the cluster whose agents run, and that all have the same key; a new cluster begins with "
             "--found or --expect N"}};
  if (c_.storage_failed)
    return {{"cluster", name, "bad", "the agent's disk failed, and it decides nothing any more",
             "see the agent's log, mend the disk, restart the agent; running tasks are not touched"}};
  if (c_.ledger.behind())
    return {{"cluster", name, "bad", "this agent cannot read on in the ledger, and decides nothing any more: " + c_.ledger.behind()->cause,
             "install a newer dtrain here, or the one that ran here before (docs/upgrading.md); running tasks are not touched"}};
  if (without_leader(c_))
    return {{"cluster", name, "bad", "no coordinator is known: jobs are neither taken nor healed",
             "start the agents of the voters that are missing (dtrainctl status, dtrainctl nodes); where these run, mend first what keeps "
             "this one from them (see reach); only where they are lost for good: dtrainctl recover-quorum"}};
  const auto holder = ledger_holder(c_);
  return {{"cluster", name, "ok", "belongs to " + c_.options.cluster_name + (holder ? ", coordinated by " + holder->name : ""), ""}};
}

void Checkups::finish(const Checkup& checkup) {
  wire::DoctorReply r;
  if (checkup.seen) {
    r.findings = examine_host(*checkup.seen);
  } else if (checkup.unseen) {
    r.findings.push_back({"host", c_.facts.name, "bad", "it could not be examined: " + checkup.unseen->message,
                          "see whether a disk or a name server hangs there (df, dmesg), and whether the agent may have more threads"});
  } else {
    r.findings.push_back({"host", c_.facts.name, "bad", "it could not be examined within " + duration_text(kExamineWithin),
                          "a disk or a name server hangs: see df, and dmesg, there"});
  }
  if (auto elsewhere = seen_elsewhere()) r.findings.push_back(std::move(*elsewhere));
  if (!checkup.of_agent) {
    for (wire::Finding& finding : of_cluster()) r.findings.push_back(std::move(finding));
    Examination nothing;
    nothing.terms.name = c_.facts.name;
    for (wire::Finding& finding : examine_peers(checkup.seen ? *checkup.seen : nothing, c_.options.version, checkup.peers))
      r.findings.push_back(std::move(finding));
  } else {
    leave_out_what_is_well(r.findings);
    if (checkup.seen && checkup.asker) r.sight = sight_of(*checkup.seen, *checkup.asker);
  }
  const std::size_t most = checkup.of_agent ? kPeerFindings : kFindings;
  if (r.findings.size() > most) leave_out_what_is_well(r.findings);
  cut(r.findings, most, c_.facts.name);
  r.wall_ms = c_.now.wall.time_since_epoch().count();
  r.took_ns = (c_.now.boot - checkup.began).count();
  reply(c_, checkup.connection, checkup.request, MessageType::doctor, r);
}

// ---------------------------------------------------------------- rows

constinit const Verb verbs::query_doctor{.serve = serve<&Checkups::begin>, .rule = kOtherHosts};

}  // namespace dtrain::node
