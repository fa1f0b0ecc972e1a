#include "tests/sim/council/trace_text.h"

namespace dtrain::sim::council {
namespace {

std::string n(std::uint64_t value) { return std::to_string(value); }

std::string entries_text(const std::vector<raft::LogEntry>& entries) {
  if (entries.empty()) return "no entries";
  return "entries " + n(entries.front().index) + ".." + n(entries.back().index) + " of terms " + n(entries.front().term) + ".." +
         n(entries.back().term);
}

std::string life_text(const raft::Life& life) { return n(life.number) + "/" + n(life.mark % 1000); }

std::string text(const wire::VoteRequest& m) {
  return std::string(m.pre ? "pre-vote?" : "vote?") + " term " + n(m.term) + " log " + n(m.last_index) + "@" + n(m.last_term);
}
std::string text(const wire::VoteReply& m) {
  return std::string(m.pre ? "pre-vote " : "vote ") + (m.granted ? "granted" : "refused") + " term " + n(m.term);
}
std::string text(const wire::AppendRequest& m) {
  return "append after " + n(m.prev_index) + "@" + n(m.prev_term) + " " + entries_text(m.entries) + " commit " + n(m.commit) + " round " +
         n(m.round);
}
std::string text(const wire::AppendReply& m) {
  return (m.accepted ? "appended to " + n(m.match) : "no append after " + n(m.prev_index) + " hint " + n(m.hint_index)) + " round " +
         n(m.round);
}
std::string text(const wire::SnapshotChunk& m) {
  return "snapshot " + n(m.index) + "@" + n(m.term) + " bytes " + n(m.offset) + "+" + n(m.bytes.size()) + " of " + n(m.total);
}
std::string text(const wire::SnapshotReply& m) { return "snapshot " + n(m.index) + (m.done ? " done" : " next " + n(m.next_offset)); }
std::string text(const wire::TimeoutNow& m) { return "campaign now, log " + n(m.last_index); }
std::string text(const wire::Fenced& m) {
  return std::string("fenced: ") + (m.reason == wire::FenceReason::stale_life ? "stale life " : "other history ") + life_text(m.yours) +
         ", seen " + life_text(m.seen);
}
std::string text(const wire::Hello&) { return "hello"; }
std::string text(const wire::Welcome& m) { return "welcome " + life_text(m.yours); }

}  // namespace

std::string short_text(const MemberId& id) { return id.none() ? "nobody" : "m" + n(id.low); }

std::string text_of(const raft::Configuration& configuration) {
  std::string out = "voters";
  for (const MemberId& id : configuration.voters) out += " " + short_text(id);
  if (!configuration.learners.empty()) out += " learners";
  for (const MemberId& id : configuration.learners) out += " " + short_text(id);
  return out;
}

std::string text_of(const wire::RaftMessage& message) {
  const wire::RaftHeader& header = message.header;
  return "[h" + n(header.history.number) + " t" + n(header.term) + " " + short_text(header.sender) + " life " + life_text(header.life) +
         "] " + std::visit([](const auto& body) { return text(body); }, message.body);
}

std::string text_of(const raft::Input& input) {
  struct Say {
    std::string operator()(const raft::Tick&) { return "tick"; }
    std::string operator()(const raft::Received& in) { return text_of(in.message); }
    std::string operator()(const raft::Persisted& in) { return "persisted " + n(in.token); }
    std::string operator()(const raft::PersistFailed& in) { return "persist failed " + n(in.token); }
    std::string operator()(const raft::Propose& in) { return "propose " + n(in.number); }
    std::string operator()(const raft::ReadAsked& in) { return "read " + n(in.number); }
    std::string operator()(const raft::ChangeAsked& in) {
      static constexpr const char* kKinds[] = {"add learner", "promote", "demote", "remove"};
      return std::string(kKinds[static_cast<std::size_t>(in.kind)]) + " " + short_text(in.member);
    }
    std::string operator()(const raft::TransferAsked& in) { return "transfer to " + short_text(in.to); }
    std::string operator()(const raft::LeaderGone& in) { return "gone is " + short_text(in.member); }
    std::string operator()(const raft::Snapshotted& in) { return "snapshotted " + n(in.index); }
    std::string operator()(const raft::Recover&) { return "recover-quorum"; }
    std::string operator()(const raft::WantState&) { return "wants another state"; }
    std::string operator()(const raft::SendState& in) { return "is to send its state to " + short_text(in.to); }
    std::string operator()(const raft::MayLead& in) { return in.may ? "may lead" : "may not lead"; }
  };
  return std::visit(Say{}, input);
}

std::string text_of(const raft::Persist& persist) {
  std::string out = "persist " + n(persist.token);
  if (persist.forget) out += " forget";
  if (persist.hard) out += " term " + n(persist.hard->term) + " vote " + short_text(persist.hard->voted_for());
  if (persist.snapshot) out += " snapshot " + n(persist.snapshot->index);
  if (persist.reset_log) out += " reset";
  if (persist.truncate_from) out += " truncate from " + n(*persist.truncate_from);
  if (!persist.entries.empty()) out += " " + entries_text(persist.entries);
  return out;
}

}  // namespace dtrain::sim::council
