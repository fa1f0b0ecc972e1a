// A few members of one log on a tiny network in virtual time, for tests that tell a story. Every message
// takes a millisecond and arrives, every disk takes a millisecond, unless a test says otherwise; the
// simulator's world does the rest at random.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/raft/raft.h"

namespace dtrain::raft {

class QuietLog : public Log {
 public:
  using Log::write;
  void write(LogLevel, std::string_view, std::span<const LogField>) override {}
};

class TinyCouncil {
 public:
  using Message = wire::RaftMessage;
  static constexpr Duration kLatency = 1ms;
  static constexpr History kHistory{1, {77, 77}};

  struct Member {
    std::unique_ptr<Raft> raft;
    Stored disk;
    std::uint64_t life = 0;
    std::optional<Persist> writing;
    Instant written{kNever};
    Duration disk_takes = 1ms;
    bool disk_fails = false, stopped = false;
    std::vector<Message> unread;                // while stopped
    std::map<std::uint64_t, LogEntry> applied;  // since its start, or behind what it installed
    std::string state;                          // every command applied, in order: the replicated state
    std::vector<Answer> answers;
    std::optional<Leadership> leadership;
    Persist last_persist;
  };

  explicit TinyCouncil(RaftOptions options = {}) : options_(std::move(options)) {}

  static MemberId id(std::uint64_t number) { return {number, number}; }
  static std::vector<MemberId> ids(std::uint64_t first, std::uint64_t last) {
    std::vector<MemberId> all;
    for (std::uint64_t number = first; number <= last; ++number) all.push_back(id(number));
    return all;
  }
  // Members 1 .. n found the log.
  void found(std::uint64_t n) {
    for (std::uint64_t number = 1; number <= n; ++number) {
      at(number).disk = raft::found(kHistory, {ids(1, n), {}});
      start(number);
    }
  }
  Member& at(std::uint64_t number) { return members_[id(number)]; }
  Raft& raft(std::uint64_t number) { return *at(number).raft; }

  // ---- faults
  void start(std::uint64_t number) {
    Member& member = at(number);
    member.life += 1;
    member.raft = std::make_unique<Raft>(Self{id(number), member.life, true}, options_, Rng(1000 * ++starts_ + number), log_, member.disk);
    member.applied.clear();
    member.state = member.disk.snapshot ? member.disk.snapshot->payload : "";
    member.stopped = false;
    give(number, Tick{});
  }
  void kill(std::uint64_t number, bool write_lands = false) {
    Member& member = at(number);
    if (member.writing && write_lands) store(member.disk, *member.writing);
    member.writing.reset();
    member.written = kNever;
    member.raft.reset();
    member.unread.clear();
  }
  void stop(std::uint64_t number) { at(number).stopped = true; }
  void resume(std::uint64_t number) {
    Member& member = at(number);
    member.stopped = false;
    for (const Message& message : std::exchange(member.unread, {})) give(number, Received{message});
  }
  void cut(std::uint64_t a, std::uint64_t b) { cuts_.insert({id(a), id(b)}), cuts_.insert({id(b), id(a)}); }
  void cut_one_way(std::uint64_t from, std::uint64_t to) { cuts_.insert({id(from), id(to)}); }
  void isolate(std::uint64_t number) {
    for (const auto& [other, unused] : members_)
      if (other != id(number)) cut(number, other.high);
  }
  void heal() { cuts_.clear(); }
  std::function<bool(const MemberId& to, const Message&)> lose;  // true: this message is lost

  // ---- time
  void give(std::uint64_t number, const Input& input) {
    Member& member = at(number);
    if (!member.raft || member.stopped) return;
    Outputs out;
    member.raft->step(now, input, out);
    take(number, member, out);
  }
  // Everything that happens until then.
  void run(Duration duration) {
    const Instant end = now + duration;
    for (;;) {
      Instant next = network_.empty() ? kNever : network_.front().first;
      for (auto& [unused, member] : members_) next = std::min(next, wake(member));
      if (next > end) break;
      now = std::max(now, next);
      turn();
    }
    now = end;
  }
  bool run_until(const std::function<bool()>& done, Duration within = 20s) {
    const Instant end = now + within;
    while (!done() && now < end) run(1ms);
    return done();
  }

  // ---- what is there
  std::uint64_t leader() {  // the one of the highest term that is ready; 0: none
    std::uint64_t best = 0, term = 0;
    for (auto& [member_id, member] : members_)
      if (member.raft && member.raft->ready() && member.raft->term() > term) best = member_id.high, term = member.raft->term();
    return best;
  }
  std::uint64_t elect() {
    EXPECT_TRUE(run_until([this] { return leader() != 0; }));
    return leader();
  }
  std::uint64_t make_leader(std::uint64_t number) {
    for (int tries = 0; tries < 20 && elect() != number; ++tries) {
      give(leader(), TransferAsked{id(number)});
      run_until([&] { return leader() == number; }, 2s);
    }
    EXPECT_EQ(leader(), number);
    return leader();
  }
  // Proposed at the leader; true when it answers that it is committed.
  bool commit(const std::string& payload) {
    const std::uint64_t at_leader = elect();
    const std::uint64_t number = ++numbers_;
    give(at_leader, Propose{number, payload});
    return run_until([&] { return answer(at_leader, number).has_value(); }, 5s) && answer(at_leader, number)->refusal == Refusal::none;
  }
  Refusal change(ChangeKind kind, std::uint64_t member) {
    const std::uint64_t at_leader = elect();
    const std::uint64_t number = ++numbers_;
    give(at_leader, ChangeAsked{number, kind, id(member)});
    run_until([&] { return answer(at_leader, number).has_value(); }, 5s);
    return answer(at_leader, number).value_or(Answer{0, Refusal::unknown, 0, 0, {}, false}).refusal;
  }
  void add_voter(std::uint64_t number) {
    at(number).disk = {};
    start(number);
    EXPECT_EQ(change(ChangeKind::add_learner, number), Refusal::none);
    EXPECT_TRUE(run_until([&] { return raft(leader()).last_index() == raft(number).durable_index(); }));
    run(200ms);
    EXPECT_EQ(change(ChangeKind::promote, number), Refusal::none);
  }
  std::optional<Answer> answer(std::uint64_t number, std::uint64_t asked) {
    for (const Answer& given : at(number).answers)
      if (given.number == asked) return given;
    return std::nullopt;
  }
  // All that run have applied the same.
  bool equal() {
    const Member* first = nullptr;
    for (auto& [unused, member] : members_) {
      if (!member.raft || member.raft->mute() != Mute::none) continue;
      if (first == nullptr) first = &member;
      if (member.state != first->state || member.raft->commit() != first->raft->commit()) return false;
    }
    return true;
  }
  template <class Body>
  std::size_t sent(std::uint64_t from) const {
    std::size_t count = 0;
    for (const auto& [sender, message] : log_of_messages)
      if (sender == id(from) && std::holds_alternative<Body>(message.message.body)) ++count;
    return count;
  }

  Instant now{1000s};
  std::vector<std::pair<MemberId, Send>> log_of_messages;
  std::vector<std::string> violations;  // two leaders in a term, logs that differ

 private:
  Instant wake(const Member& member) const {
    if (!member.raft || member.stopped) return member.written;
    return std::min(member.written, member.raft->deadline());
  }
  void turn() {
    while (!network_.empty() && network_.front().first <= now) {
      const auto [when, from, send] = std::move(network_.front().second);
      network_.pop_front();
      if (cuts_.contains({from, send.to}) || (lose && lose(send.to, send.message))) continue;
      const auto found = members_.find(send.to);
      if (found == members_.end() || !found->second.raft) continue;
      if (found->second.stopped) found->second.unread.push_back(send.message);
      else give(send.to.high, Received{send.message});
    }
    for (auto& [member_id, member] : members_) {
      if (member.written <= now) {
        if (member.stopped) {
          member.written = now + 1ms;  // the disk does not wait for the process, but its word does
          continue;
        }
        const Persist done = *std::exchange(member.writing, std::nullopt);
        member.written = kNever;
        if (member.disk_fails) {
          give(member_id.high, PersistFailed{done.token});
          continue;
        }
        store(member.disk, done);
        for (const Send& send : done.sends) post(member_id, send);
        give(member_id.high, Persisted{done.token});
      }
      if (member.raft && !member.stopped && member.raft->deadline() <= now) give(member_id.high, Tick{});
    }
  }
  void post(const MemberId& from, const Send& send) {
    log_of_messages.emplace_back(from, send);
    // Every message crosses as bytes.
    auto decoded = wire::decode_raft(wire::type_of(send.message.body), from, wire::encode_raft(send.message));
    ASSERT_TRUE(decoded) << decoded.error().text();
    network_.push_back({now + kLatency, {now, from, {send.to, *std::move(decoded)}}});
  }
  void take(std::uint64_t number, Member& member, const Outputs& out) {
    for (const Send& send : out.sends) post(id(number), send);
    if (out.persist) {
      EXPECT_FALSE(member.writing) << "two writes at once";
      member.writing = member.last_persist = *out.persist;
      member.written = now + member.disk_takes;
    }
    if (out.forgotten) member.state.clear(), member.applied.clear();
    if (out.installed) member.state = out.installed->payload, member.applied.clear();
    for (const LogEntry& entry : out.committed) {
      member.applied[entry.index] = entry;
      if (entry.kind == EntryKind::command) member.state += entry.payload + ";";
      const auto [known, fresh] = chosen_.try_emplace({member.raft->history(), entry.index}, entry);
      if (!fresh && !(known->second == entry)) violations.push_back("entry " + std::to_string(entry.index) + " differs");
    }
    for (const Answer& given : out.answers) member.answers.push_back(given);
    if (out.leadership) {
      member.leadership = out.leadership;
      if (out.leadership->role == Role::leader) {
        const auto [known, fresh] = leaders_.try_emplace({member.raft->history(), out.leadership->term}, id(number));
        if (!fresh && known->second != id(number)) violations.push_back("two leaders in term " + std::to_string(out.leadership->term));
      }
    }
  }

  struct InFlight {
    Instant sent{};
    MemberId from;
    Send send;
  };
  RaftOptions options_;
  QuietLog log_;
  std::map<MemberId, Member> members_;
  std::deque<std::pair<Instant, InFlight>> network_;  // one latency: in order
  std::set<std::pair<MemberId, MemberId>> cuts_;
  std::map<std::pair<History, std::uint64_t>, LogEntry> chosen_;
  std::map<std::pair<History, std::uint64_t>, MemberId> leaders_;
  std::uint64_t starts_ = 0, numbers_ = 0;
};

}  // namespace dtrain::raft
