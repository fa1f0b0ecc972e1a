#include "common/node/checkpoint_copies.h"

#include <algorithm>

#include "common/node/checkpoint_requests.h"
#include "common/node/host_capacities.h"
#include "common/node/reply.h"
#include "common/node/serve.h"

namespace dtrain::node {
namespace {

using cluster::CheckpointRecord;
using cluster::JobRecord;
using wire::MessageType;

const CheckpointRecord* restored_record(const JobRecord& job) {
  for (const CheckpointRecord& r : job.checkpoints)
    if (r.info.path == job.restored->path && r.info.digest == job.restored_digest) return &r;
  return nullptr;
}

std::uint64_t bytes_of(const std::vector<wire::CheckpointFiles::File>& files) {
  std::uint64_t sum = 0;
  for (const auto& file : files) sum += file.size;
  return sum;
}

}  // namespace

// ---------------------------------------------------------------- tasks of this host

// If a task of the generation has begun here, the checkpoint's files were here then.
bool CheckpointCopies::needed(const JobRecord* job, const AssignmentId& id) const {
  if (c_.options.broken_rule == "copied-is-staged" || !c_.among_others()) return false;
  if (job == nullptr || !job->spec.checkpoint || !job->restored || job->generation != id.generation) return false;
  if (restored_record(*job) == nullptr) return false;
  return std::ranges::none_of(job->tasks, [&](const auto& entry) {
    const cluster::TaskRecord& t = entry.second;
    return t.place.node == c_.facts.id && t.attempt >= t.first_attempt;
  });
}

void CheckpointCopies::begin(const StagedTask& task) {
  const AssignmentId& id = task.stage.id;
  const JobRecord* job = c_.ledger.find(id.job);
  if (!needed(job, id)) return pass(id);
  Copy& copy = copies_[{job->id, job->generation}];
  copy.info = restored_record(*job)->info;
  copy.waiting.insert(id);
}

void CheckpointCopies::fetch(const NodeId& from, VerifyCheckpoint share) {
  const auto [it, added] = copies_.try_emplace({share.job, 0});
  if (!added) start_over(it->second);
  Copy& copy = it->second;
  copy = {};
  copy.answer = share.token;
  copy.from = from;
  copy.info = std::move(share.info);
  copy.looked = true;
}

bool CheckpointCopies::end_fetch(JobId job, std::uint64_t token) {
  const auto it = copies_.find({job, 0});
  if (it == copies_.end() || it->second.answer != token) return false;
  settle(it, fail(ErrorCode::unavailable, "nobody waits for it any more"));
  return true;
}

// Ends a copy of fetch().
void CheckpointCopies::settle(Copies::iterator it, const Status& result) {
  Copy& copy = it->second;
  if (!result) start_over(copy);
  else if (copy.part != 0) relays_.close(copy.part);
  c_.later.push_back(CheckpointVerified{it->first.first, copy.answer, copy.info.path, result});
  copies_.erase(it);
}

void CheckpointCopies::give_up(const AssignmentId& id) {
  for (auto& [key, copy] : copies_) copy.waiting.erase(id);
}

void CheckpointCopies::release(Copies::iterator it) {
  const Copy copy = std::move(it->second);
  copies_.erase(it);
  if (copy.part != 0) relays_.close(copy.part);
  for (const AssignmentId& id : copy.waiting) {
    wait(id, "");
    pass(id);
  }
}

void CheckpointCopies::fail_all(Copies::iterator it, const Error& error) {
  c_.log.write(LogLevel::warn, "checkpoint.not-copied", {{"path", it->second.info.path}, {"cause", error.text()}});
  if (it->second.answer != 0) return settle(it, fail(error));
  start_over(it->second);
  for (const AssignmentId& id : it->second.waiting) refuse(id, error);
  copies_.erase(it);
}

// ---------------------------------------------------------------- a copy

// Looks at what lies under the checkpoint's path: the checkpoint itself, or another one.
void CheckpointCopies::look(Copies::iterator it) {
  Copy& copy = it->second;
  const JobRecord* job = c_.ledger.find(it->first.first);
  if (job == nullptr) return;  // its tasks are taken away, too
  job::CheckpointSpec spec = *job->spec.checkpoint;
  spec.dir = copy.info.path;
  copy.token = c_.tickets.give(this);
  copy.asked_at = c_.now.boot;
  c_.emit(ScanCheckpoints{job->id, copy.token, std::move(spec), job->user, read_below(*job, copy.info.path)});
}

void CheckpointCopies::scanned(const CheckpointsScanned& e) {
  const auto it = of_token(e.token);
  if (it == copies_.end()) return;
  Copy& copy = it->second;
  copy.token = 0;
  const JobRecord* job = c_.ledger.find(it->first.first);
  if (job == nullptr) return;
  // The stager reports what is wrong with the user; any other problem shows when the files are written.
  if (!e.found && e.found.error().code == ErrorCode::refused) return release(it);
  if (!e.found || e.found->empty()) return lacks(it);
  const auto own = std::ranges::find(*e.found, copy.info.path, &transfer::CheckpointInfo::path);
  if (own == e.found->end()) return lacks(it);
  if (own->is_share()) return lacks(it);  // the files that come take the place of these
  if (own->digest != copy.info.digest || !own->complete) {
    c_.emit(QuarantineCheckpoint{job->id, c_.next_token(), *own, job->user, job->spec.checkpoint->dir});
    return lacks(it);
  }
  // Some host has verified these very files. A copy of them was not verified and may have decayed since.
  if ((own->place == job->restored_place && own->place != 0) || c_.options.broken_rule == "own-copy-is-verified") return release(it);
  copy.own = *own;
  copy.token = c_.tickets.give(this);
  copy.asked_at = c_.now.boot;
  c_.emit(verification(*job, copy.token, *own));
}

void CheckpointCopies::lacks(Copies::iterator it) {
  it->second.looked = true;
  it->second.own.reset();
  for (const AssignmentId& id : it->second.waiting) wait(id, "fetches checkpoint " + it->second.info.path);
}

// Only damage condemns the files, for all hosts that see them; files that cannot be read now are looked at again.
void CheckpointCopies::verified(const CheckpointVerified& e) {
  const auto it = of_token(e.token);
  if (it == copies_.end()) return;
  Copy& copy = it->second;
  copy.token = 0;
  if (e.result) return release(it);
  const Error& cause = e.result.error();
  if (cause.code == ErrorCode::damaged) return own_is_damaged(it, *copy.own, cause);
  if (cause.code == ErrorCode::not_found) return lacks(it);
  copy.own.reset();
  copy.retry = c_.now.boot + kCopyAgain;
  if (++copy.rounds >= kCopyRounds)
    fail_all(it, {ErrorCode::unavailable, "could not verify checkpoint " + e.path + " on host " + c_.facts.name + ": " + cause.text(), ""});
}

void CheckpointCopies::own_is_damaged(Copies::iterator it, const transfer::CheckpointInfo& own, const Error& cause) {
  c_.log.write(LogLevel::warn, "checkpoint.own-copy-damaged", {{"path", own.path}, {"cause", cause.text()}});
  if (const JobRecord* job = c_.ledger.find(it->first.first)) {
    watch_.damaged(job->id, own, cause);
    c_.emit(QuarantineCheckpoint{job->id, c_.next_token(), own, job->user, job->spec.checkpoint->dir});
  }
  lacks(it);
}

// First the hosts that are known to have the checkpoint, then all that may have got it since.
std::deque<NodeId> CheckpointCopies::sources_of(JobId id, const Copy& copy) const {
  if (copy.answer != 0) return {copy.from};
  std::deque<NodeId> sources;
  const auto add = [&](const NodeId& host) {
    if (host != c_.facts.id && std::ranges::find(sources, host) == sources.end()) sources.push_back(host);
  };
  if (const JobRecord* job = c_.ledger.find(id))
    for (const CheckpointRecord& r : job->checkpoints)
      if (r.info.path == copy.info.path && r.info.digest == copy.info.digest)
        for (const auto& p : r.places) add(p.host);
  const raft::Configuration& all = c_.replicated->raft().configuration();
  for (const auto* members : {&all.voters, &all.learners})
    for (const MemberId& member : *members) add(member.text());
  return sources;
}

void CheckpointCopies::start_over(Copy& copy) {
  if (copy.part != 0) relays_.close(std::exchange(copy.part, 0));
  if (copy.writer != 0) c_.emit(DropCheckpoint{copy.writer});
  copy.writer = {};
  copy.files.clear();
  copy.have = 0;
  copy.complete = false;
  copy.token = 0;
}

void CheckpointCopies::next_source(Copies::iterator it) {
  Copy& copy = it->second;
  if (!copy.in_round) {
    copy.in_round = copy.all_lack = true;
    copy.problem.clear();
    copy.sources = sources_of(it->first.first, copy);
  }
  if (copy.writer == 0) copy.writer = c_.connections.open(*this);
  while (!copy.sources.empty()) {
    copy.source = std::move(copy.sources.front());
    copy.sources.pop_front();
    const wire::GetCheckpointRequest asked{it->first.first, wire::encode(copy.info), copy.have};
    const auto part = relays_.open({copy.writer, 1, {}, MessageType::get_checkpoint, wire::encode(asked)}, copy.source, true);
    if (part) {
      copy.part = *part;
      copy.came = c_.now.boot;
      return;
    }
    copy.all_lack = false;
    if (copy.problem.empty()) copy.problem = part.error().message;
  }
  round_failed(it);
}

void CheckpointCopies::round_failed(Copies::iterator it) {
  Copy& copy = it->second;
  copy.in_round = false;
  if (copy.answer != 0 && copy.all_lack)
    return settle(it, fail(ErrorCode::not_found, "host " + host_name(c_, copy.from) + " no longer has its share of " + copy.info.path));
  // Somebody removed the checkpoint meanwhile, or all copies decayed. If the generation runs already, its other tasks
  // hold the parameters, and this task begins without the checkpoint. Otherwise another one is chosen.
  const JobRecord* job = c_.ledger.find(it->first.first);
  const bool runs = job != nullptr && std::ranges::any_of(job->tasks, [](const auto& entry) {
                      return !entry.second.ended && entry.second.attempt >= entry.second.first_attempt;
                    });
  if (copy.all_lack && runs) {
    c_.log.write(LogLevel::warn, "checkpoint.gone", {{"path", copy.info.path}});
    start_over(copy);
    return release(it);
  }
  if (copy.all_lack) copy.problem = "no host has it any more";
  copy.retry = c_.now.boot + kCopyAgain;
  if (++copy.rounds < kCopyRounds) return;
  fail_all(it, {ErrorCode::unavailable, "could not copy checkpoint " + copy.info.path + " to host " + c_.facts.name + ": " + copy.problem,
                "dtrainctl nodes shows which hosts are away"});
}

CheckpointCopies::Copies::iterator CheckpointCopies::of_token(std::uint64_t token) {
  return std::ranges::find_if(copies_, [&](const auto& entry) { return token != 0 && entry.second.token == token; });
}

CheckpointCopies::Copies::iterator CheckpointCopies::of_writer(ConnectionId writer) {
  return std::ranges::find_if(copies_, [&](const auto& entry) { return entry.second.writer == writer; });
}

void CheckpointCopies::relay_answered(const RelayAnswered& e) {
  const auto it = of_writer(e.connection);
  if (it == copies_.end() || it->second.part == 0) return;
  Copy& copy = it->second;
  const auto message = wire::decode<wire::Message>(e.message);
  if (message && message->type == MessageType::error) return;  // RelayEnded reports the error
  const auto wrong = [&] {
    copy.all_lack = false;
    if (copy.problem.empty()) copy.problem = "host " + host_name(c_, copy.source) + " sent what was not asked for";
    start_over(copy);  // drive() then continues
  };
  if (!message || copy.complete) return wrong();
  copy.came = c_.now.boot;
  if (message->type == MessageType::checkpoint_files) {
    auto told = wire::decode<wire::CheckpointFiles>(message->payload);
    if (!told || told->files.empty() || told->files.size() > kCopiedFiles || (!copy.files.empty() && copy.files != told->files))
      return wrong();
    copy.files = std::move(told->files);
    return;
  }
  auto chunk = message->type == MessageType::blob_chunk ? wire::decode<wire::BlobChunk>(message->payload)
                                                        : Result<wire::BlobChunk>(fail(ErrorCode::damaged, ""));
  const std::uint64_t all = bytes_of(copy.files);
  if (!chunk || copy.files.empty() || chunk->offset != copy.have || chunk->bytes.size() > all - std::min(all, copy.have) ||
      (message->last && copy.have + chunk->bytes.size() != all))
    return wrong();
  WriteCheckpoint write{copy.writer, copy.info, {}, {}, chunk->offset, {}, message->last, {}};
  if (const JobRecord* job = c_.ledger.find(it->first.first)) {
    write.user = job->user;
    if (job->spec.checkpoint) write.dir = job->spec.checkpoint->dir;
  }
  if (copy.have == 0) write.files = copy.files;
  copy.have += chunk->bytes.size();
  copy.complete = message->last;
  write.bytes = std::move(chunk->bytes);
  c_.emit(std::move(write));
}

void CheckpointCopies::relay_ended(const RelayEnded& e) {
  for (auto& [key, copy] : copies_) {
    if (copy.part == 0 || copy.part != e.part) continue;
    copy.part = 0;
    if (e.how == RelayEnded::How::done || (e.how == RelayEnded::How::refused && e.error.code == ErrorCode::not_found)) return;
    copy.all_lack = false;
    const std::string host = "host " + host_name(c_, copy.source);
    if (copy.problem.empty()) copy.problem = host + (e.how == RelayEnded::How::lost ? " " : ": ") + e.error.message;
    return;
  }
}

void CheckpointCopies::checkpoint_written(const CheckpointWritten& e) {
  const auto it = of_writer(e.writer);
  if (it == copies_.end()) return;
  Copy& copy = it->second;
  if (!e.result && e.result.error().code != ErrorCode::damaged) return fail_all(it, e.result.error());
  if (!e.result) {
    copy.all_lack = false;
    if (copy.problem.empty()) copy.problem = "what host " + host_name(c_, copy.source) + " sent is damaged";
    c_.log.write(LogLevel::warn, "checkpoint.copy-damaged", {{"path", copy.info.path}, {"from", host_name(c_, copy.source)}});
    if (copy.answer != 0) return settle(it, e.result);
    return start_over(copy);
  }
  c_.log.write(LogLevel::info, "checkpoint.copied",
               {{"path", copy.info.path}, {"bytes", std::to_string(copy.have)}, {"from", host_name(c_, copy.source)}});
  if (copy.answer != 0) return settle(it, {});
  transfer::CheckpointInfo info = copy.info;
  info.place = 0;
  watch_.placed(it->first.first, std::move(info));
  release(it);
}

void CheckpointCopies::members_changed() {
  for (auto& [key, copy] : copies_) {
    const auto cause = copy.part == 0 ? std::nullopt : relays_.away(copy.source);
    if (!cause) continue;
    relays_.close(std::exchange(copy.part, 0));
    copy.all_lack = false;
    if (copy.problem.empty()) copy.problem = cause->message;
  }
}

void CheckpointCopies::drive() {
  std::size_t busy = 0;
  for (auto it = copies_.begin(); it != copies_.end();) {
    const auto at = it++;
    Copy& copy = at->second;
    if (copy.part != 0 && !copy.complete && copy.came + kCopyStalls <= c_.now.boot) {
      relays_.close(std::exchange(copy.part, 0));
      copy.all_lack = false;
      if (copy.problem.empty()) copy.problem = "host " + host_name(c_, copy.source) + " sends nothing";
    }
    busy += copy.busy() ? 1 : 0;
    if (copy.waiting.empty() && copy.answer == 0) {
      if (copy.own && copy.token != 0) c_.emit(EndVerification{at->first.first, copy.token});
      start_over(copy);
      copies_.erase(at);
    } else if (copy.token != 0 && !copy.own && copy.asked_at + kOwnLookWithin <= c_.now.boot) {
      fail_all(at, {ErrorCode::unavailable,
                    "could not look for checkpoint " + copy.info.path + ": host " + c_.facts.name + " does not read its disk",
                    "mend the disk, or drain the host: dtrainctl drain " + c_.facts.name});
    } else if (!copy.looked && copy.token == 0 && copy.retry <= c_.now.boot) {
      look(at);
    }
  }
  for (auto it = copies_.begin(); it != copies_.end();) {
    const auto at = it++;
    const Copy& copy = at->second;
    if (!copy.looked || copy.busy() || (!copy.in_round && copy.retry > c_.now.boot) || busy >= kCopiesAtOnce) continue;
    next_source(at);  // may end the copy
    ++busy;
  }
}

Instant CheckpointCopies::deadline() const {
  Instant next = kNever;
  std::size_t busy = 0;
  for (const auto& [key, copy] : copies_) {
    busy += copy.busy() ? 1 : 0;
    if (copy.part != 0 && !copy.complete) next = std::min(next, copy.came + kCopyStalls);
    if (copy.token != 0 && !copy.own) next = std::min(next, copy.asked_at + kOwnLookWithin);
    if (!copy.looked && copy.token == 0) next = std::min(next, copy.retry);
  }
  if (busy >= kCopiesAtOnce) return next;
  for (const auto& [key, copy] : copies_)
    if (copy.looked && !copy.busy()) next = std::min(next, copy.retry);
  return next;
}

// ---------------------------------------------------------------- other agents

void CheckpointCopies::send(const Request& e, const wire::GetCheckpointRequest& q) {
  const JobRecord* job = c_.ledger.find(q.job);
  auto info = wire::decode<transfer::CheckpointInfo>(q.info);
  if (job == nullptr || !job->spec.checkpoint || !info)
    return reply_error(c_, e.connection, e.request, {ErrorCode::invalid, "could not send a checkpoint: its job is not known here", ""});
  std::string below = read_below(*job, info->path);
  c_.emit(SendCheckpoint{e.connection, e.request, std::move(*info), job->user, q.offset, std::move(below)});
}

// ---------------------------------------------------------------- rows

constinit const Verb verbs::get_checkpoint{.serve = serve<&CheckpointCopies::send>, .rule = kLookForCheckpoints};

}  // namespace dtrain::node
