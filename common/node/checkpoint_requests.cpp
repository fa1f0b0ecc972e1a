#include "common/node/checkpoint_requests.h"

#include <algorithm>

#include "common/node/checkpoint_copies.h"
#include "common/node/host_capacities.h"
#include "common/node/reply.h"
#include "common/node/serve.h"

namespace dtrain::node {
namespace {

using wire::CheckpointAsk;
using wire::MessageType;

Duration limit_of(CheckpointAsk ask) {
  switch (ask) {
    case CheckpointAsk::scan: return kScanWithin;
    case CheckpointAsk::verify:
    case CheckpointAsk::fetch: return kVerifyWithin;
    case CheckpointAsk::quarantine: return kQuarantineWithin;
  }
  return kScanWithin;
}

}  // namespace

std::string read_below(const cluster::JobRecord& job, const std::string& path) {
  if (!job.spec.checkpoint) return "";
  return path == job.spec.checkpoint->restore ? path : job.spec.checkpoint->dir;
}

VerifyCheckpoint verification(const cluster::JobRecord& job, std::uint64_t token, transfer::CheckpointInfo info) {
  std::string below = read_below(job, info.path);
  return {job.id, token, std::move(info), job.user, std::move(below)};
}

// ---------------------------------------------------------------- this host asks

void CheckpointRequests::scan(const NodeId& host, ScanCheckpoints effect) {
  const wire::CheckpointQuestion body{CheckpointAsk::scan, effect.job, effect.spec.dir, ""};
  ask({host, effect.job, effect.token, "", body, 0, kNever, ""});
  if (host == c_.facts.id) c_.emit(std::move(effect));
}

void CheckpointRequests::verify(const NodeId& host, VerifyCheckpoint effect) {
  const wire::CheckpointQuestion body{CheckpointAsk::verify, effect.job, "", wire::encode(effect.info)};
  ask({host, effect.job, effect.token, effect.info.path, body, 0, kNever, ""});
  if (host == c_.facts.id) c_.emit(std::move(effect));
}

void CheckpointRequests::quarantine(const NodeId& host, QuarantineCheckpoint effect) {
  const wire::CheckpointQuestion body{CheckpointAsk::quarantine, effect.job, "", wire::encode(effect.info)};
  ask({host, effect.job, effect.token, effect.info.path, body, 0, kNever, ""});
  if (host == c_.facts.id) c_.emit(std::move(effect));
}

void CheckpointRequests::fetch(const NodeId& host, const NodeId& from, VerifyCheckpoint share) {
  const wire::CheckpointQuestion body{CheckpointAsk::fetch, share.job, from, wire::encode(share.info)};
  ask({host, share.job, share.token, share.info.path, body, 0, kNever, ""});
  if (host == c_.facts.id) copies_->fetch(from, std::move(share));
}

void CheckpointRequests::ask(Question question) {
  if (question.host == c_.facts.id) {
    question.until = c_.now.boot + limit_of(question.body.ask);
    own_[question.token] = std::move(question);
    return;
  }
  if (open_.size() < kQuestionsAtOnce && is_open_to(question.host)) return open(std::move(question));
  if (waiting_.size() < kQuestionsWaiting) return waiting_.push_back(std::move(question));
  settle(question, fail(ErrorCode::limit, "too many questions about checkpoints wait for other hosts already", "try again in a moment"));
}

void CheckpointRequests::withdraw(std::uint64_t token) {
  if (const auto own = own_.find(token); own != own_.end()) return end_reading(own->second.job, token);
  const auto nobody = [&](const Question& q) { settle(q, fail(ErrorCode::unavailable, "nobody waits for it any more")); };
  if (const auto waits = std::ranges::find(waiting_, token, &Question::token); waits != waiting_.end()) {
    nobody(*waits);
    waiting_.erase(waits);
  }
  const auto open = std::ranges::find_if(open_, [&](const auto& entry) { return entry.second.token == token; });
  if (open == open_.end()) return;
  relays_.close(open->second.part);  // its host learns by that
  nobody(open->second);
  open_.erase(open);
}

void CheckpointRequests::end_reading(JobId job, std::uint64_t token) {
  if (!copies_->end_fetch(job, token)) c_.emit(EndVerification{job, token});
}

bool CheckpointRequests::is_open_to(const NodeId& host) const {
  const auto open = std::ranges::count_if(open_, [&](const auto& entry) { return entry.second.host == host; });
  return static_cast<std::size_t>(open) < kQuestionsOfHost;
}

void CheckpointRequests::open(Question question) {
  question.until = c_.now.boot + limit_of(question.body.ask);
  OwnConnection own = c_.connections.open(*this);
  const ConnectionId number = own;
  const auto part = relays_.open({number, 1, {}, MessageType::ask_checkpoint, wire::encode(question.body)}, question.host, true);
  if (!part) return settle(question, fail(part.error()));
  question.part = *part;
  question.connection = std::move(own);
  open_.emplace(number, std::move(question));
}

void CheckpointRequests::settle(const Question& q, const Status& result) {
  auto answer = result ? wire::decode<wire::CheckpointAnswer>(q.answer) : Result<wire::CheckpointAnswer>(fail(result.error()));
  switch (q.body.ask) {
    case CheckpointAsk::scan: {
      using List = std::vector<transfer::CheckpointInfo>;
      auto found = answer ? wire::decode<List>(answer->found) : Result<List>(fail(answer.error()));
      c_.later.push_back(CheckpointsScanned{q.job, q.token, std::move(found)});
      return;
    }
    case CheckpointAsk::verify:
    case CheckpointAsk::fetch:
      c_.later.push_back(CheckpointVerified{q.job, q.token, q.path, answer ? Status{} : Status(fail(answer.error()))});
      return;
    case CheckpointAsk::quarantine:
      c_.later.push_back(CheckpointQuarantined{q.job, q.token, q.path,
                                               answer ? Result<std::string>(answer->moved_to) : Result<std::string>(fail(answer.error()))});
      return;
  }
}

void CheckpointRequests::relay_answered(const RelayAnswered& e) {
  const auto found = open_.find(e.connection);
  if (found == open_.end()) return;
  const auto message = wire::decode<wire::Message>(e.message);
  if (message && message->type == MessageType::checkpoint_answer) found->second.answer = message->payload;
}

void CheckpointRequests::relay_ended(const RelayEnded& e) {
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    if (it->second.part != e.part) continue;
    const Question q = std::move(it->second);
    open_.erase(it);
    if (e.how == RelayEnded::How::done) return settle(q, {});
    // The code of a lost stream says nothing about the checkpoint.
    const std::string host = "host " + host_name(c_, q.host);
    if (e.how == RelayEnded::How::refused) {
      const ErrorCode code = e.error.code == ErrorCode::unavailable ? ErrorCode::io : e.error.code;
      return settle(q, fail(code, host + ": " + e.error.message, e.error.next));
    }
    return settle(q, fail(ErrorCode::unavailable, host + " " + e.error.message, e.error.next));
  }
}

void CheckpointRequests::members_changed() {
  for (auto it = open_.begin(); it != open_.end();) {
    const auto cause = relays_.away(it->second.host);
    if (!cause) {
      ++it;
      continue;
    }
    relays_.close(it->second.part);
    settle(it->second, fail(*cause));
    it = open_.erase(it);
  }
}

void CheckpointRequests::drive() {
  for (auto it = own_.begin(); it != own_.end();) {
    const auto at = it++;
    if (at->second.until > c_.now.boot) continue;
    settle(at->second, fail(ErrorCode::unavailable, "host " + c_.facts.name + " does not read its disk"));
    own_.erase(at);
  }
  for (auto it = open_.begin(); it != open_.end();) {
    if (it->second.until > c_.now.boot) {
      ++it;
      continue;
    }
    relays_.close(it->second.part);
    settle(it->second, fail(ErrorCode::unavailable, "host " + host_name(c_, it->second.host) + " does not read its disk"));
    it = open_.erase(it);
  }
  for (auto it = waiting_.begin(); it != waiting_.end() && open_.size() < kQuestionsAtOnce;) {
    if (!is_open_to(it->host)) {
      ++it;
      continue;
    }
    Question q = std::move(*it);
    it = waiting_.erase(it);
    open(std::move(q));
  }
}

Instant CheckpointRequests::deadline() const {
  Instant next = kNever;
  for (const auto* questions : {&open_, &own_})
    for (const auto& [id, q] : *questions) next = std::min(next, q.until);
  return next;
}

// ---------------------------------------------------------------- other agents ask

void CheckpointRequests::asked(const Request& e, const wire::CheckpointQuestion& q) {
  const auto refuse = [&](ErrorCode code, const std::string& cause) { reply_error(c_, e.connection, e.request, {code, cause, ""}); };
  const cluster::JobRecord* job = c_.ledger.find(q.job);
  if (job == nullptr || !job->spec.checkpoint) return refuse(ErrorCode::not_found, "it does not know the job");
  if (c_.storage_failed) return refuse(ErrorCode::unavailable, "its disk failed");
  if (askers_.size() >= kQuestionsOfOthers) return refuse(ErrorCode::limit, "it answers too many questions about checkpoints already");
  const std::uint64_t token = c_.tickets.give(this);
  if (q.ask == CheckpointAsk::scan) {
    askers_[token] = {e.connection, e.request, 0};
    job::CheckpointSpec spec = *job->spec.checkpoint;
    if (!q.dir.empty()) spec.dir = q.dir;
    return c_.emit(ScanCheckpoints{job->id, token, spec, job->user});
  }
  auto info = wire::decode<transfer::CheckpointInfo>(q.info);
  if (!info) return refuse(ErrorCode::invalid, info.error().message);
  askers_[token] = {e.connection, e.request, q.ask == CheckpointAsk::quarantine ? 0 : job->id};
  if (q.ask == CheckpointAsk::fetch) return copies_->fetch(q.dir, verification(*job, token, std::move(*info)));
  if (q.ask == CheckpointAsk::verify) return c_.emit(verification(*job, token, std::move(*info)));
  c_.emit(QuarantineCheckpoint{job->id, token, std::move(*info), job->user, job->spec.checkpoint->dir});
}

// Whom the answer is for; connection 0: it is closed.
CheckpointRequests::Asker CheckpointRequests::take(std::uint64_t token) {
  const auto found = askers_.find(token);
  if (found == askers_.end()) return {};
  const Asker asker = found->second;
  askers_.erase(found);
  return asker;
}

void CheckpointRequests::scanned(const CheckpointsScanned& e) {
  const Asker asker = take(e.token);
  if (asker.connection == 0) return;
  if (!e.found) return reply_error(c_, asker.connection, asker.request, e.found.error());
  std::vector<transfer::CheckpointInfo> newest;
  std::size_t bytes = 0;
  for (const auto& info : *e.found) {
    bytes += wire::encode(info).size();
    if (bytes > kFoundBytes) break;
    newest.push_back(info);
  }
  reply(c_, asker.connection, asker.request, MessageType::checkpoint_answer, wire::CheckpointAnswer{wire::encode(newest), ""});
}

void CheckpointRequests::verified(const CheckpointVerified& e) {
  const Asker asker = take(e.token);
  if (asker.connection == 0) return;
  if (e.result) reply(c_, asker.connection, asker.request, MessageType::checkpoint_answer, wire::CheckpointAnswer{});
  else reply_error(c_, asker.connection, asker.request, e.result.error());
}

void CheckpointRequests::quarantined(const CheckpointQuarantined& e) {
  const Asker asker = take(e.token);
  if (asker.connection == 0) return;
  if (e.moved_to) reply(c_, asker.connection, asker.request, MessageType::checkpoint_answer, wire::CheckpointAnswer{"", *e.moved_to});
  else reply_error(c_, asker.connection, asker.request, e.moved_to.error());
}

void CheckpointRequests::closed(ConnectionId connection) {
  for (auto& [token, asker] : askers_)
    if (asker.connection == connection) {
      asker.connection = 0;  // the disk completes a scan and a quarantine all the same
      if (asker.reads != 0) end_reading(asker.reads, token);
    }
}

// ---------------------------------------------------------------- rows

constinit const Verb verbs::ask_checkpoint{.serve = serve<&CheckpointRequests::asked>, .rule = kLookForCheckpoints};

}  // namespace dtrain::node
