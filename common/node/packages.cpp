#include "common/node/packages.h"

#include <algorithm>

#include "common/base/limits.h"
#include "common/node/host_capacities.h"
#include "common/node/package_rights.h"
#include "common/node/reply.h"
#include "common/node/serve.h"

namespace dtrain::node {
namespace {

using wire::MessageType;

std::string name_of(const std::string& digest) { return "package " + shown_digest(digest); }

}  // namespace

bool Packages::votes() const { return c_.replicated && c_.replicated->raft().configuration().votes(c_.replicated->raft().id()); }

// ---------------------------------------------------------------- tasks of this host

bool Packages::provides(const StagedTask& task, const Staged& e) {
  const std::string& digest = task.stage.package_digest;
  if (digest.empty() || !e.lacks_package || !c_.replicated || c_.replicated->alone()) return false;
  Fetch& f = fetches_[digest];
  f.waiting[e.id] = task.stage.job_name;
  f.retry = std::min(f.retry, c_.now.boot);
  wait(e.id, "fetches " + name_of(digest));
  return true;
}

void Packages::give_up(const AssignmentId& id) {
  for (auto& [digest, f] : fetches_) f.waiting.erase(id);
}

// ---------------------------------------------------------------- a fetch

// First the hosts that are known to have had the package, then all with a copy of the ledger: only there are tasks
// staged and jobs submitted.
std::deque<NodeId> Packages::sources_of(const std::string& digest, const Fetch& f) const {
  std::deque<NodeId> sources;
  const auto add = [&](const NodeId& host) {
    if (host.empty() || host == c_.facts.id || std::ranges::find(sources, host) != sources.end()) return;
    sources.push_back(host);
  };
  for (const Keeper& keeper : f.keepers) add(keeper.host);
  for (const auto& [id, job] : c_.ledger.state().jobs)
    if (job.spec.package_digest == digest) add(job.package_host);
  const raft::Configuration& all = c_.replicated->raft().configuration();
  for (const auto* members : {&all.voters, &all.learners})
    for (const MemberId& id : *members) add(id.text());
  return sources;
}

// Keepers name a host that has the package. It is added to a round in progress even if that round asked it before,
// because it may have got the package since.
void Packages::add_keepers(Fetch& f, const std::vector<Keeper>& keepers) {
  for (const Keeper& keeper : keepers) {
    f.keepers.push_back(keeper);
    if (!f.in_round || keeper.host.empty() || keeper.host == c_.facts.id || (f.part != 0 && f.source == keeper.host)) continue;
    std::erase(f.sources, keeper.host);
    f.sources.push_front(keeper.host);
  }
}

void Packages::note_problem(Fetch& f, const std::string& cause) {
  if (f.problem.empty()) f.problem = cause;
}

void Packages::next_source(const std::string& digest, Fetch& f) {
  if (!f.in_round) {
    f.in_round = true;
    f.problem.clear();
    // The package may have come in another way since it was found missing: by a user's upload, or by a fetch that was just ending.
    f.looks = true;
    c_.emit(FindBlob{digest});
    return;
  }
  if (f.writer == 0) f.writer = c_.connections.open(*this);
  while (!f.sources.empty()) {
    f.source = std::move(f.sources.front());
    f.sources.pop_front();
    const Relays::Asked asked{f.writer, ++f.asked, {}, MessageType::get_blob, wire::encode(wire::GetBlobRequest{digest, f.have})};
    const auto part = relays_.open(asked, f.source, true);
    if (part) {
      f.part = *part;
      f.came = c_.now.boot;
      return;
    }
    note_problem(f, part.error().message);
  }
  round_failed(digest, f);
}

void Packages::round_failed(const std::string& digest, Fetch& f) {
  f.in_round = false;
  f.retry = c_.now.boot + std::min(kFetchAgain * (1 << std::min(f.rounds, 8u)), kFetchAgainAtMost);
  ++f.rounds;
  const std::string why = f.problem.empty() ? "no host that can be asked has " + name_of(digest)
                                            : "no host that answers has " + name_of(digest) + ": " + f.problem;
  if (f.rounds == 1) c_.log.write(LogLevel::warn, "package.missing", {{"package", digest}, {"reason", why}});
  for (const auto& [id, job] : f.waiting) wait(id, why + "; start a host that has it, or dtrainctl restart " + job + " --package DIR");
  for (const Keeper& k : std::exchange(f.keepers, {}))
    reply_error(c_, k.connection, k.request, {ErrorCode::unavailable, why, "dtrainctl nodes shows which hosts are away"});
  f.spread = false;
  own_copy(digest, why);
}

void Packages::close(Fetch& f) {
  if (f.part != 0) relays_.close(std::exchange(f.part, 0));
}

// Drops what was written.
void Packages::start_over(Fetch& f) {
  close(f);
  if (f.writer != 0) c_.emit(DropBlob{f.writer});
  f.writer = {};
  f.have = 0;
  f.complete = false;
}

Packages::Fetches::iterator Packages::of_writer(ConnectionId writer) {
  return std::ranges::find_if(fetches_, [&](const auto& entry) { return entry.second.writer == writer; });
}

void Packages::relay_answered(const RelayAnswered& e) {
  const auto found = of_writer(e.connection);
  if (found == fetches_.end() || found->second.part == 0) return;
  auto& [digest, f] = *found;
  const auto message = wire::decode<wire::Message>(e.message);
  if (message && message->request != f.asked) return;          // an answer from an earlier source
  if (message && message->type == MessageType::error) return;  // RelayEnded reports the error
  auto chunk = message && message->type == MessageType::blob_chunk ? wire::decode<wire::BlobChunk>(message->payload)
                                                                   : Result<wire::BlobChunk>(fail(ErrorCode::damaged, ""));
  if (!chunk || chunk->offset != f.have || chunk->bytes.size() > limits::kBlobChunkBytes ||
      chunk->bytes.size() > limits::kPackageBytes - f.have || f.complete) {
    note_problem(f, "host " + host_name(c_, f.source) + " sent what was not asked for");
    start_over(f);
    return;  // drive() continues
  }
  f.came = c_.now.boot;
  f.have += chunk->bytes.size();
  f.complete = message->last;
  c_.emit(WriteBlob{f.writer, 1, chunk->offset, std::move(chunk->bytes), message->last, digest, true});
}

void Packages::relay_ended(const RelayEnded& e) {
  for (auto& [connection, s] : spreads_) {
    const auto part = s.asked.find(e.part);
    if (part == s.asked.end()) continue;
    const NodeId host = part->second;
    s.asked.erase(part);
    if (e.how == RelayEnded::How::done) ++s.have;
    else if (s.problem.empty()) s.problem = "host " + host_name(c_, host) + (e.how == RelayEnded::How::lost ? " " : ": ") + e.error.message;
    return settle(s);
  }
  const auto found =
      std::ranges::find_if(fetches_, [&](const auto& entry) { return entry.second.part != 0 && entry.second.part == e.part; });
  if (found == fetches_.end()) return;
  Fetch& f = found->second;
  f.part = 0;
  const std::string host = "host " + host_name(c_, f.source);
  if (e.how == RelayEnded::How::refused && e.error.code != ErrorCode::not_found) note_problem(f, host + ": " + e.error.message);
  if (e.how == RelayEnded::How::lost) note_problem(f, host + " " + e.error.message);
}

void Packages::blob_written(const BlobWritten& e) {
  const auto found = of_writer(e.connection);
  if (found == fetches_.end()) return;
  auto& [digest, f] = *found;
  if (e.digest) {
    c_.log.write(LogLevel::info, "package.fetched",
                 {{"package", digest}, {"bytes", std::to_string(f.have)}, {"from", host_name(c_, f.source)}});
    f.writer = {};  // it ended with the failure
    return is_here(found);
  }
  if (e.digest.error().code != ErrorCode::damaged) return disk_failed(digest, f, e.digest.error());
  // If several sources sent parts, it is not known whose bytes were wrong: all are fetched again, from the next source.
  c_.log.write(LogLevel::warn, "package.damaged", {{"package", digest}, {"from", host_name(c_, f.source)}});
  note_problem(f, "what host " + host_name(c_, f.source) + " sent is damaged");
  start_over(f);
}

void Packages::disk_failed(const std::string& digest, Fetch& f, const Error& error) {
  start_over(f);
  f.in_round = f.looks = false;
  f.retry = c_.now.boot + kFetchAgainAtMost;
  c_.log.write(LogLevel::warn, "package.not-stored", {{"package", digest}, {"cause", error.text()}});
  for (const auto& [id, job] : std::exchange(f.waiting, {})) refuse(id, error);
  for (const Keeper& k : std::exchange(f.keepers, {})) reply_error(c_, k.connection, k.request, error);
  f.spread = false;
  own_copy(digest, error.message);
}

void Packages::is_here(Fetches::iterator found) {
  start_over(found->second);  // if it came in another way
  Fetch f = std::move(found->second);
  own_copy(found->first, "");
  fetches_.erase(found);
  for (const Keeper& k : f.keepers) reply(c_, k.connection, k.request, MessageType::blob, wire::BlobReply{true});
  for (const auto& [id, job] : f.waiting) {
    wait(id, "");
    if (c_.options.broken_rule != "fetched-is-staged") pass(id);
  }
}

void Packages::drive() {
  std::erase_if(spreads_, [](const auto& entry) { return entry.second.over && entry.second.asked.empty(); });
  if (fetches_.empty() && next_look_ > c_.now.boot) return;
  look_for_kept();
  for (auto it = fetches_.begin(); it != fetches_.end();) {
    Fetch& f = it->second;
    if (f.part != 0 && !f.complete && f.came + kFetchStalls <= c_.now.boot) {
      note_problem(f, "host " + host_name(c_, f.source) + " sends nothing");
      close(f);
    }
    if (!f.wanted()) start_over(f);
    it = f.wanted() ? std::next(it) : fetches_.erase(it);
  }
  Slots now = slots();
  for (const bool awaited : {true, false}) {
    for (auto& [digest, f] : fetches_) {
      if (f.awaited() != awaited || f.busy() || (!f.in_round && f.retry > c_.now.boot)) continue;
      if (!now.room_for(f)) break;
      next_source(digest, f);
      now.count(f);
    }
  }
}

Packages::Slots Packages::slots() const {
  Slots slots;
  for (const auto& [digest, f] : fetches_) slots.count(f);
  return slots;
}

Instant Packages::deadline() const {
  Instant next = next_look_;
  const Slots now = slots();
  for (const auto& [digest, f] : fetches_) {
    if (f.part != 0 && !f.complete) next = std::min(next, f.came + kFetchStalls);
    if (!f.busy() && now.room_for(f)) next = std::min(next, f.retry);
  }
  return next;
}

void Packages::members_changed() {
  for (auto& [digest, f] : fetches_) {
    if (f.part != 0) {
      const auto cause = relays_.away(f.source);
      if (!cause) continue;
      close(f);
      note_problem(f, cause->message);
    } else if (!f.in_round && f.rounds > 0) {
      f.retry = std::min(f.retry, c_.now.boot + kFetchAgain);  // a host that has it may be back
    }
  }
  for (auto& [connection, s] : spreads_) {
    for (auto it = s.asked.begin(); it != s.asked.end();) {
      const auto [part, host] = *it++;
      const auto cause = relays_.away(host);
      if (!cause) continue;
      relays_.close(part);
      s.asked.erase(part);
      if (s.problem.empty()) s.problem = cause->message;
    }
    settle(s);
  }
}

// ---------------------------------------------------------------- copies at voters

void Packages::keep(const Request& e, const wire::KeepBlobRequest& q) {
  std::size_t waiting = 0;
  for (const auto& [digest, keepers] : finding_) waiting += keepers.size();
  for (const auto& [digest, f] : fetches_) waiting += f.keepers.size();
  if (waiting >= kKeepers)
    return reply_error(c_, e.connection, e.request,
                       {ErrorCode::limit, "could not keep " + name_of(q.digest) + ": too many packages are being fetched already",
                        "try again in a moment"});
  const Keeper keeper{e.connection, e.request, q.host};
  if (const auto f = fetches_.find(q.digest); f != fetches_.end()) {
    add_keepers(f->second, {keeper});
    if (!f->second.busy()) f->second.retry = c_.now.boot;
    return;
  }
  std::vector<Keeper>& keepers = finding_[q.digest];
  keepers.push_back(keeper);
  if (keepers.size() == 1) c_.emit(FindBlob{q.digest});
}

void Packages::found(const BlobFound& e) {
  std::vector<Keeper> keepers;
  if (const auto found = finding_.find(e.digest); found != finding_.end()) {
    keepers = std::move(found->second);
    finding_.erase(found);
  }
  const auto fetch = fetches_.find(e.digest);
  if (!e.there) {
    c_.log.write(LogLevel::warn, "package.not-found", {{"package", e.digest}, {"cause", e.there.error().text()}});
    for (const Keeper& k : keepers) reply_error(c_, k.connection, k.request, e.there.error());
    if (fetch != fetches_.end() && fetch->second.looks) disk_failed(e.digest, fetch->second, e.there.error());
    own_copy(e.digest, e.there.error().message);
    return;
  }
  if (*e.there) {
    for (const Keeper& k : keepers) reply(c_, k.connection, k.request, MessageType::blob, wire::BlobReply{true});
    if (fetch != fetches_.end()) is_here(fetch);
    own_copy(e.digest, "");
    return;
  }
  const bool kept = votes() && kept_.contains(e.digest) && !c_.replicated->alone();
  bool spread = false;
  for (auto& [connection, s] : spreads_) {
    if (s.own == Spread::Own::known || s.digest != e.digest) continue;
    s.own = Spread::Own::fetched;
    settle(s);
    spread = spread || !s.over;
  }
  if (fetch == fetches_.end() && !kept && !spread && keepers.empty()) return;
  Fetch& f = fetches_[e.digest];
  f.kept = f.kept || kept;
  f.spread = f.spread || spread;
  add_keepers(f, keepers);
  if (std::exchange(f.looks, false)) f.sources = sources_of(e.digest, f);
}

void Packages::job_changed(JobId id) {
  const cluster::JobRecord* job = c_.ledger.find(id);
  if (job == nullptr || job->spec.package_digest.empty() || is_final(job->state)) return;
  if (!kept_.insert(job->spec.package_digest).second) return;
  if (votes() && c_.among_others() && looked_since_ < kKeptPerLook) {
    ++looked_since_;
    c_.emit(FindBlob{job->spec.package_digest});
  }
  next_look_ = std::min(next_look_, c_.now.boot + kLookForKept);
}

void Packages::look_for_kept() {
  if (next_look_ > c_.now.boot) return;
  kept_.clear();
  looked_since_ = 0;
  for (const auto& [id, job] : c_.ledger.state().jobs)
    if (!job.spec.package_digest.empty() && !is_final(job.state)) kept_.insert(job.spec.package_digest);
  next_look_ = kept_.empty() ? kNever : c_.now.boot + kLookForKept;
  for (auto& [digest, f] : fetches_) f.kept = f.kept && votes() && kept_.contains(digest);
  if (!votes() || !c_.among_others()) return;
  auto at = kept_.upper_bound(looked_last_);
  for (std::size_t n = 0; n < std::min(kKeptPerLook, kept_.size()); ++n, ++at) {
    if (at == kept_.end()) at = kept_.begin();
    looked_last_ = *at;
    if (!finding_.contains(*at) && !fetches_.contains(*at)) c_.emit(FindBlob{*at});
  }
}

// ---------------------------------------------------------------- clients

bool Packages::spread(const Request& e, const std::string& digest, const std::string& could_not) {
  if (digest.empty() || !c_.among_others() || had_.erase({e.connection, e.request}) != 0) return true;
  std::size_t clients = 0, bytes = e.body.size();
  Spread* same = nullptr;
  for (auto& [connection, s] : spreads_) {
    clients += s.waiting.size();
    for (const auto& w : s.waiting) bytes += w.request.body.size();
    if (s.digest == digest && !s.fails()) same = &s;
  }
  if (clients >= kSpreads || bytes > kSpreadBytes) {
    reply_error(c_, e.connection, e.request,
                {ErrorCode::limit, could_not + ": too many packages are being copied to the voters already", "try again in a moment"});
    return false;
  }
  if (same != nullptr) {
    same->waiting.push_back({e, could_not});
    same->over = false;
    settle(*same);
    return false;
  }
  const raft::Configuration& all = c_.replicated->raft().configuration();
  Spread s;
  s.waiting.push_back({e, could_not});
  s.digest = digest;
  s.of = all.voters.size();
  s.needed = s.of / 2 + 1;
  if (votes()) {  // the package of a job that is submitted here may have been uploaded elsewhere, or removed from the cache
    s.own = Spread::Own::looked_for;
    c_.emit(FindBlob{digest});
  }
  s.connection = c_.connections.open(*this);
  const ConnectionId own = s.connection;
  for (const MemberId& voter : all.voters) {
    const NodeId host = voter.text();
    if (host == c_.facts.id) continue;
    const Relays::Asked asked{own, 1, {}, MessageType::keep_blob, wire::encode(wire::KeepBlobRequest{digest, c_.facts.id})};
    if (const auto part = relays_.open(asked, host, true)) s.asked[*part] = host;
    else if (s.problem.empty()) s.problem = part.error().message;
  }
  settle(spreads_.emplace(own, std::move(s)).first->second);
  return false;
}

// `problem`: why this voter has no copy; "": it is on this disk.
void Packages::own_copy(const std::string& digest, const std::string& problem) {
  for (auto& [connection, s] : spreads_) {
    if (s.own == Spread::Own::known || s.digest != digest) continue;
    s.own = Spread::Own::known;
    if (problem.empty()) ++s.have;
    else if (s.problem.empty()) s.problem = problem;
    settle(s);
  }
}

void Packages::settle(Spread& s) {
  if (s.over) return;
  const bool enough = s.have >= s.needed;
  if (!enough && !s.fails()) return;
  s.over = true;
  for (auto& [request, could_not] : std::exchange(s.waiting, {})) {
    if (enough) {
      had_.insert({request.connection, request.request});
      c_.later.push_back(std::move(request));
      continue;
    }
    reply_error(c_, request.connection, request.request,
                {ErrorCode::unavailable,
                 could_not + ": its package is on " + std::to_string(s.have) + " of " + std::to_string(s.of) + " voters, and is to be on " +
                     std::to_string(s.needed) + ": " + s.problem,
                 "dtrainctl nodes shows which agents are missing: start them, then try again"});
  }
}

void Packages::closed(ConnectionId connection) {
  const auto of_it = [&](const Keeper& k) { return k.connection == connection; };
  for (auto& [digest, keepers] : finding_) std::erase_if(keepers, of_it);
  for (auto& [digest, f] : fetches_) std::erase_if(f.keepers, of_it);
  std::erase_if(had_, [&](const auto& request) { return request.first == connection; });
  for (auto& [own, s] : spreads_) {
    std::erase_if(s.waiting, [&](const auto& w) { return w.request.connection == connection; });
    s.over = s.over || s.waiting.empty();  // a voter that fetches it may go on
  }
}

// ---------------------------------------------------------------- rows

constinit const Verb verbs::keep_blob{.serve = serve<&Packages::keep>, .rule = kPackages};

}  // namespace dtrain::node
