// A council that is whatever a test says it is: real members, so that checkers can look at them, whose
// messages, disks and answers the test makes up.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/council/checkers/checkers.h"
#include "tests/sim/violation.h"

namespace dtrain::sim::council {

class NoLog final : public Log {
 public:
  void write(LogLevel, std::string_view, std::span<const LogField>) override {}
};

struct FakeMember {
  FakeMember() : machine(100, raft::Rules{}) {}
  Truth truth;
  raft::Stored disk;
  RegisterMachine machine;
  std::unique_ptr<raft::Raft> core;
  raft::Configuration durable;
  bool persists = false;
};

class FakeView final : public WorldView {
 public:
  static inline const raft::History kHistory{1, {0x41, 7}};

  explicit FakeView(Slot count) {
    now_ += 100s;
    for (Slot slot = 0; slot < count; ++slot) members_.push_back(std::make_unique<FakeMember>());
    for (Slot slot = 0; slot < count; ++slot) {
      Truth& truth = members_[slot]->truth;
      truth.id = id(slot);
      truth.name = "h" + std::to_string(slot);
      truth.runs = true;
      configuration_.voters.push_back(truth.id);
    }
    for (Slot slot = 0; slot < count; ++slot) restart(slot, raft::found(kHistory, configuration_));
  }
  static MemberId id(Slot slot) { return {0xd1, slot + 1}; }
  FakeMember& member(Slot slot) { return *members_[slot]; }
  // A process on what the disk holds. A configuration of one voter leads after a moment, of several never by
  // itself.
  void restart(Slot slot, raft::Stored stored) {
    FakeMember& member = *members_[slot];
    member.disk = std::move(stored);
    member.durable = configuration_;
    raft::Self self;
    self.id = member.truth.id;
    self.life = ++lives_;
    member.core = std::make_unique<raft::Raft>(self, options_, Rng(lives_), log_, member.disk);
  }
  // Steps the member, persists at once what it wants, delivers nothing.
  raft::Outputs step(Slot slot, const raft::Input& input) {
    FakeMember& member = *members_[slot];
    raft::Outputs all, out;
    member.core->step(now_, input, out);
    for (;;) {
      std::move(out.sends.begin(), out.sends.end(), std::back_inserter(all.sends));
      std::move(out.committed.begin(), out.committed.end(), std::back_inserter(all.committed));
      std::move(out.answers.begin(), out.answers.end(), std::back_inserter(all.answers));
      if (!out.persist) return all;
      const raft::Persist persist = std::move(*out.persist);
      raft::store(member.disk, persist);
      std::copy(persist.sends.begin(), persist.sends.end(), std::back_inserter(all.sends));
      out.clear();
      member.core->step(now_, raft::Persisted{persist.token}, out);
    }
  }
  // Makes `slot` the leader of the next term: the others' messages are made up.
  void lead(Slot slot) {
    FakeMember& member = *members_[slot];
    for (int tries = 0; tries < 100 && !member.core->ready(); ++tries) {
      now_ = std::max(now_ + 50ms, std::min(member.core->deadline(), now_ + 3s));
      raft::Outputs out = step(slot, raft::Tick{});
      for (int rounds = 0; rounds < 8 && !out.sends.empty(); ++rounds) {
        const std::vector<raft::Send> sends = std::move(out.sends);
        out.clear();
        for (const raft::Send& send : sends)
          if (const auto answer = answered_for(send)) {
            raft::Outputs more = step(slot, raft::Received{*answer});
            std::move(more.sends.begin(), more.sends.end(), std::back_inserter(out.sends));
          }
      }
    }
  }
  raft::Send message(Slot from, Slot to, wire::RaftBody body, std::uint64_t term = 1) const {
    return {id(to), {{kHistory, term, id(from), {1, 1}}, std::move(body)}};
  }
  raft::LogEntry entry(std::uint64_t index, std::uint64_t term, std::uint64_t request = 0) const {
    raft::LogEntry entry;
    entry.index = index;
    entry.term = term;
    entry.kind = request == 0 ? raft::EntryKind::leader : raft::EntryKind::command;
    if (request != 0) entry.payload = encode_command({request, index - 1});
    entry.elapsed = Duration(index);
    return entry;
  }
  bool broke(std::string_view invariant) const { return violation_ && violation_->invariant == invariant; }
  void mend() { violation_.reset(); }

  Instant now() const override { return now_; }
  Slot slots() const override { return static_cast<Slot>(members_.size()); }
  const Truth& truth(Slot slot) const override { return members_[slot]->truth; }
  const raft::Raft* core(Slot slot) const override { return members_[slot]->truth.runs ? members_[slot]->core.get() : nullptr; }
  const raft::Stored& disk(Slot slot) const override { return members_[slot]->disk; }
  const RegisterMachine& machine(Slot slot) const override { return members_[slot]->machine; }
  std::optional<Slot> slot_of(const MemberId& wanted) const override {
    for (Slot slot = 0; slot < slots(); ++slot)
      if (members_[slot]->truth.id == wanted) return slot;
    return std::nullopt;
  }
  bool persists(Slot slot) const override { return members_[slot]->persists; }
  raft::Configuration durable_configuration(Slot slot) const override { return members_[slot]->durable; }
  bool linked(Slot, Slot) const override { return true; }
  const raft::RaftOptions& options() const override { return options_; }
  bool only_stalls() const override { return only_stalls_; }
  bool any_disk_lost() const override { return false; }
  bool busy() const override { return true; }
  void violation(std::string_view invariant, std::string what) override {
    if (!violation_) violation_ = Violation{std::string(invariant), std::move(what), now_};
  }

  Instant now_{};
  raft::RaftOptions options_;
  raft::Configuration configuration_;
  bool only_stalls_ = false;
  std::optional<Violation> violation_;

 private:
  // What a member that agrees to everything answers.
  std::optional<wire::RaftMessage> answered_for(const raft::Send& send) const {
    const wire::RaftHeader& header = send.message.header;
    wire::RaftMessage answer{{header.history, header.term, send.to, {1, 1}}, wire::Hello{}};
    if (const auto* request = std::get_if<wire::VoteRequest>(&send.message.body)) {
      answer.body = wire::VoteReply{request->pre, request->term, true};
    } else if (const auto* append = std::get_if<wire::AppendRequest>(&send.message.body)) {
      wire::AppendReply reply;
      reply.round = append->round;
      reply.accepted = true;
      reply.match = append->prev_index + append->entries.size();
      answer.body = reply;
    } else if (std::holds_alternative<wire::Hello>(send.message.body)) {
      answer.body = wire::Welcome{header.life};
    } else {
      return std::nullopt;
    }
    return answer;
  }

  std::vector<std::unique_ptr<FakeMember>> members_;
  NoLog log_;
  std::uint64_t lives_ = 0;
};

}  // namespace dtrain::sim::council
