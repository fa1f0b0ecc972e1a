// One member among peers that the test plays: what it hears, what it says, what it makes durable.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/raft/tiny_council.h"

namespace dtrain::raft {

// With that rule kept, and broken.
inline std::vector<std::string> kept_and(const std::string& rule) { return {"", rule}; }

class LoneVoter {
 public:
  static constexpr std::uint64_t kSelf = 1;
  static constexpr History kHistory{1, {77, 77}};
  static MemberId id(std::uint64_t number) { return {number, number}; }
  static Configuration voters(std::uint64_t n) { return {TinyCouncil::ids(1, n), {}}; }
  static LogEntry entry(std::uint64_t index, std::uint64_t term, std::string payload = "x") {
    return {index, term, std::move(payload), EntryKind::command, {}};
  }
  static LogEntry reconfiguration(std::uint64_t index, std::uint64_t term, const Configuration& configuration) {
    return {index, term, wire::encode_configuration(configuration), EntryKind::configuration, {}};
  }

  // Voter 1 of n, whose log holds the configuration and the commands of these terms from entry 2 on.
  explicit LoneVoter(std::uint64_t n, const std::vector<std::uint64_t>& terms = {}, const std::string& broken_rule = {})
      : options_(broken(broken_rule)) {
    disk = raft::found(kHistory, voters(n));
    for (const std::uint64_t term : terms) disk.log.push_back(entry(disk.log.size() + 1, term));
    if (!terms.empty()) disk.hard.term = terms.back();
    restart();
  }
  LoneVoter(Stored stored, const std::string& broken_rule) : disk(std::move(stored)), options_(broken(broken_rule)) { restart(); }

  // The process ends and comes back; what was not durable is lost. Peers welcome the new life.
  void restart(bool welcomed = true) {
    raft_.emplace(Self{id(kSelf), ++life_, true}, options_, Rng(++seed_), log_, disk);
    writing.reset();
    out.clear();
    give(Tick{});
    land_all();
    if (welcomed)
      for (const MemberId& member : raft_->configuration().voters)
        if (member != id(kSelf)) receive(member.high, raft_->term(), wire::Welcome{raft_->life()});
    out.clear();
  }

  Raft& operator*() { return *raft_; }
  Raft* operator->() { return &*raft_; }

  // The disk lands at once, unless `slow`.
  void give(const Input& input) {
    raft_->step(now, input, out);
    if (out.persist) writing = std::exchange(out.persist, std::nullopt);
    if (!slow) land_all();
  }
  void land_all() {
    while (writing) land();
  }
  void land() {
    ASSERT_TRUE(writing);
    const Persist done = *std::exchange(writing, std::nullopt);
    store(disk, done);
    last = done;
    for (const Send& send : done.sends) out.sends.push_back(send);
    raft_->step(now, Persisted{done.token}, out);
    if (out.persist) writing = std::exchange(out.persist, std::nullopt);
  }
  void fail_write() {
    const Persist failed = *std::exchange(writing, std::nullopt);
    raft_->step(now, PersistFailed{failed.token}, out);
  }
  void receive(std::uint64_t from, std::uint64_t term, wire::RaftBody body, Life life = {1, 1}, History history = kHistory) {
    give(Received{{{history, term, id(from), life}, std::move(body)}});
  }
  void pass(Duration duration) {
    const Instant end = now + duration;
    while (raft_->deadline() <= end) {
      now = std::max(now, raft_->deadline());
      give(Tick{});
    }
    now = end;
  }
  // Wins with the votes of all others; its first entry is committed. A council of one leads from its start.
  void lead() {
    if (raft_->ready()) return;
    stand();
    for (const MemberId& member : raft_->configuration().voters)
      if (member != id(kSelf)) receive(member.high, raft_->term(), wire::VoteReply{false, raft_->term(), true});
    ASSERT_EQ(raft_->role(), Role::leader);
    acknowledge_all();
    ASSERT_TRUE(raft_->ready());
  }
  // Becomes a candidate: pre-votes are granted.
  void stand() {
    pass(raft_->deadline() - now);
    const std::uint64_t term = raft_->term();
    if (raft_->role() == Role::pre_candidate)
      for (const MemberId& member : raft_->configuration().voters)
        if (member != id(kSelf) && raft_->role() == Role::pre_candidate) receive(member.high, term, wire::VoteReply{true, term + 1, true});
  }
  void acknowledge(std::uint64_t from, std::uint64_t match) {
    receive(from, raft_->term(), wire::AppendReply{round(), true, match, match, 0, 0});
  }
  void acknowledge_all() {
    for (const MemberId& member : raft_->configuration().voters)
      if (member != id(kSelf)) acknowledge(member.high, raft_->last_index());
  }
  wire::AppendRequest request(std::uint64_t prev_index, std::uint64_t prev_term, std::vector<LogEntry> entries = {},
                              std::uint64_t commit = 0) {
    return {1, prev_index, prev_term, commit, {}, std::move(entries)};
  }
  std::uint64_t round() const {
    std::uint64_t newest = 0;
    for (const Send& send : out.sends)
      if (const auto* body = std::get_if<wire::AppendRequest>(&send.message.body)) newest = std::max(newest, body->round);
    return newest;
  }
  template <class Body>
  std::vector<Body> sent(std::optional<std::uint64_t> to = std::nullopt) const {
    std::vector<Body> found;
    for (const Send& send : out.sends)
      if (const auto* body = std::get_if<Body>(&send.message.body); body && (!to || send.to == id(*to))) found.push_back(*body);
    return found;
  }
  template <class Body>
  std::optional<wire::RaftHeader> header_of() const {
    for (const Send& send : out.sends)
      if (std::holds_alternative<Body>(send.message.body)) return send.message.header;
    return std::nullopt;
  }
  std::optional<Answer> answer(std::uint64_t number) const {
    for (const Answer& answer : out.answers)
      if (answer.number == number) return answer;
    return std::nullopt;
  }

  Stored disk;
  Instant now{1000s};
  Outputs out;  // of all steps since it was cleared; but Persist
  std::optional<Persist> writing;
  Persist last;
  bool slow = false;

 private:
  static RaftOptions broken(const std::string& rule) {
    RaftOptions options;
    options.broken_rule = rule;
    return options;
  }
  RaftOptions options_;
  QuietLog log_;
  std::optional<Raft> raft_;
  std::uint64_t life_ = 0, seed_ = 0;
};

}  // namespace dtrain::raft
