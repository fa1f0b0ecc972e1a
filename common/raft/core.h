// The inside of Raft: one state machine whose parts are told apart by file.
//
//   raft.cpp          the public face; stored.cpp: what is on the disk
//   step.cpp          start, deadlines, the end of a step
//   receiving.cpp     a message arrives: its history, life and term are judged
//   election.cpp      roles, pre-votes, votes, hand-over
//   leading.cpp       a leader sends, counts and commits
//   following.cpp     a follower appends and acknowledges
//   snapshots.cpp     compaction; a snapshot goes out or comes in
//   asking.cpp        proposals, reads, changes of the configuration
//   persisting.cpp    what becomes durable, and the messages that wait for it
//   histories.cpp     recover-quorum: a history begins on one survivor, the others follow
#pragma once

#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/raft/configuration.h"
#include "common/raft/ledger_clock.h"
#include "common/raft/log.h"
#include "common/raft/progress.h"
#include "common/raft/raft.h"
#include "common/raft/rules.h"

namespace dtrain::raft {

class Raft::Core {
 public:
  Core(Self self, RaftOptions options, Rng rng, Log& log, Stored stored);

  void step(Instant now, const Input& input, Outputs& out, bool more);
  Instant deadline() const;

  const MemberId& id() const { return id_; }
  const Life& life() const { return life_; }
  const History& history() const { return hard_.history; }
  std::uint64_t term() const { return hard_.term; }
  Role role() const { return role_; }
  bool ready() const { return ready_; }
  const MemberId& leader() const { return leader_; }
  Instant heard() const { return heard_; }
  Mute mute() const { return mute_; }
  bool settled() const { return now_ >= settled_at_; }
  const Configuration& configuration() const { return configurations_.current(); }
  std::uint64_t commit() const { return commit_; }
  const RaftLog& entries() const { return log_; }
  std::uint64_t snapshot_index() const { return snapshot_ ? snapshot_->index : 0; }
  Duration elapsed(Instant now) const { return clock_.now(now); }
  std::vector<FollowerView> followers(Instant now) const;
  const Counters& counters() const { return counters_; }
  std::size_t memory_bytes() const;

 private:
  using Followers = std::map<MemberId, Progress>;
  // A message that may be sent once the hard state and the entries up to `index` (0: none) are durable.
  struct Waiting {
    Send send;
    std::uint64_t index = 0;
  };
  struct Pending {  // a proposal or change of this leader that is not answered yet
    std::uint64_t number = 0, index = 0, term = 0;
  };
  struct Read {
    std::uint64_t number = 0, round = 0, index = 0;
  };
  struct Incoming {  // a snapshot that is being received
    MemberId from;
    std::uint64_t index = 0, term = 0, total = 0;
    std::string bytes;
  };
  struct Newer {  // a newer history whose leader this member hears
    History history;
    Instant since{}, heard{};  // since when this member hears that leader and none of its own, without a pause; when it last did
  };
  struct Transfer {
    MemberId to;
    Instant until{};
  };

  static constexpr std::size_t kWaitingSends = 4096;  // messages that wait for the disk; further ones are lost, as on any network
  static constexpr std::size_t kMostLives = wire::kMostVoters + wire::kMostLearners;  // lives that are remembered
  static constexpr std::uint32_t kQuickTries = 3;  // quick elections after LeaderGone, before the usual pace

  // ---- step.cpp
  void start();
  void note_stall();
  void run_timers();
  void run_leader_timers();
  void finish(bool more);
  void act(const Tick&) {}
  bool with(Rule rule) const { return rules_.hold(rule); }
  bool voter() const { return configuration().votes(id_); }
  bool stands() const;  // may stand for election
  bool just_resumed() const { return now_ < resumed_ + options_.stall; }
  Duration between(Duration from, Duration to);  // a random duration in that range
  void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) { log_sink_.write(level, event, fields); }

  // ---- receiving.cpp
  void act(const Received& received);
  bool admits(const wire::RaftMessage& message);  // judges the sender's history and life
  bool knows_life(const wire::RaftHeader& header);
  void remember(const MemberId& id, const Life& life);
  void forget_strangers();
  void adopt_term(const wire::RaftMessage& message);
  void answer_old_leader(const wire::RaftMessage& message);
  void receive(const wire::RaftHeader& from, const wire::Fenced& fenced);
  void receive(const wire::RaftHeader& from, const wire::Hello&);
  void receive(const wire::RaftHeader& from, const wire::Welcome& welcome);
  void greet();  // tells the others that a new life of this member begins

  // ---- election.cpp
  void receive(const wire::RaftHeader& from, const wire::VoteRequest& request);
  void receive(const wire::RaftHeader& from, const wire::VoteReply& reply);
  void receive(const wire::RaftHeader& from, const wire::TimeoutNow& now);
  void act(const LeaderGone& gone);
  void act(const TransferAsked& asked);
  void act(const MayLead& owner);
  bool leader_is_heard() const;
  bool as_new(std::uint64_t last_index, std::uint64_t last_term) const;
  bool would_vote(const wire::RaftHeader& from, const wire::VoteRequest& request) const;
  void election_is_due();
  void ask_for_votes(bool pre);
  void count_votes();
  void become_follower(std::uint64_t term, const MemberId& leader);
  void become_leader();
  void lose_leadership();
  void heard_leader(const MemberId& leader);
  void time_election();
  void time_retry(bool pre);
  void go_mute(Mute why);
  bool begin_transfer(MemberId to);
  void hand_over();

  // ---- leading.cpp
  void receive(const wire::RaftHeader& from, const wire::AppendReply& reply);
  void broadcast();  // one round: a message to everybody, if only a heartbeat
  bool needs_no_heartbeat(const MemberId& id, const Progress& follower) const;
  void feed(const MemberId& id, Progress& follower);
  void announce_commit();
  void feed_all();
  void send_entries(const MemberId& id, Progress& follower, std::size_t most);
  void append_own(LogEntry entry);
  void adopt_configuration();  // brings followers and timers in line after the configuration changed
  void count_matches();
  void commit_to(std::uint64_t index);
  void check_quorum();
  void refused(const MemberId& id, Progress& follower, const wire::AppendReply& reply);
  std::uint64_t own_durable() const;

  // ---- following.cpp
  void receive(const wire::RaftHeader& from, const wire::AppendRequest& request);
  bool sane(const wire::AppendRequest& request, std::uint64_t term) const;
  void take_entries(const wire::AppendRequest& request);
  void cut_from(std::uint64_t index);
  void refuse_append(const MemberId& to, const wire::AppendRequest& request);

  // ---- snapshots.cpp
  void receive(const wire::RaftHeader& from, const wire::SnapshotChunk& chunk);
  void receive(const wire::RaftHeader& from, const wire::SnapshotReply& reply);
  void act(const Snapshotted& made);
  bool snapshot_waits(const MemberId& id, const Progress& follower) const;
  void begin_snapshot(Progress& follower);
  void send_chunk(const MemberId& id, Progress& follower);
  void act(const WantState&) { wants_state_ = true; }
  void act(const SendState& asked);
  bool replaces_state(const wire::SnapshotChunk& chunk) const;
  void install(const wire::SnapshotChunk& chunk);
  void take_state(const wire::SnapshotChunk& chunk);
  void answer_installed(const MemberId& to, const wire::SnapshotChunk& chunk);
  void cover(std::uint64_t index, std::uint64_t term, Duration elapsed, std::string state);
  void compact();

  // ---- asking.cpp
  void act(const Propose& asked);
  void act(const ReadAsked& asked);
  void act(const ChangeAsked& asked);
  Refusal may_propose() const;
  Refusal may_change(const ChangeAsked& asked, Configuration& after);
  void answer(std::uint64_t number, Refusal refusal, bool read = false);
  void confirm_reads();
  bool change_under_way() const { return configurations_.current_index() > commit_; }

  // ---- histories.cpp
  void act(const Recover& asked);
  bool may_follow(const History& newer);
  void adopt_history(const History& newer);
  void begin_history();

  // ---- persisting.cpp
  void act(const Persisted& done);
  void act(const PersistFailed& failed);
  wire::RaftHeader header() const { return {hard_.history, hard_.term, id_, life_}; }
  void send(const MemberId& to, wire::RaftBody body, std::uint64_t durable_to = 0);
  void send(Send send, std::uint64_t durable_to);
  void drop_waiting_from(std::uint64_t index);
  void hard_changed() { hard_waits_ = true; }
  bool hard_durable() const;
  void persist();

  // ---- set once
  const RaftOptions options_;
  const Rules rules_;
  Rng rng_;
  Log& log_sink_;
  const MemberId id_;
  Life life_;

  // ---- durable, or about to be
  HardState hard_;
  RaftLog log_;
  std::shared_ptr<const StoredSnapshot> snapshot_;
  ConfigurationHistory configurations_;

  // ---- durability
  bool hard_waits_ = false, hard_in_flight_ = false;
  bool snapshot_waits_ = false, snapshot_resets_ = false;
  bool wants_state_ = false;    // the owner: see WantState
  bool forget_waits_ = false;   // the next Persist first drops all that is on the disk
  bool persist_whole_ = false;  // the next Persist includes all entries
  std::uint64_t token_ = 0;
  bool in_flight_ = false;
  std::deque<Waiting> waiting_;  // messages that wait for a Persist that is yet to be made
  std::vector<Send> held_;       // messages that wait for the Persist under way

  // ---- everybody
  Instant now_{}, resumed_{}, expected_{kNever};
  bool started_ = false;
  Outputs* out_ = nullptr;
  Counters counters_;
  Mute mute_ = Mute::none;
  Role role_ = Role::follower;
  bool may_lead_ = true;
  MemberId leader_;
  std::uint64_t commit_ = 0, applied_ = 0;
  std::size_t applied_bytes_ = 0;  // applied since the snapshot
  LedgerClock clock_;
  Leadership told_;

  // ---- followers and candidates
  Instant heard_{};           // when the leader was last heard
  Instant election_{kNever};  // when the next election is due
  MemberId last_leader_;      // the last leader of this term
  bool leader_gone_ = false;  // last_leader_'s process is gone
  std::uint32_t quick_tries_ = 0;
  std::set<MemberId> granted_, denied_;
  Newer newer_;
  std::optional<Incoming> incoming_;
  std::set<MemberId> strangers_to_life_;  // members that have not confirmed yet that they know this life
  Instant settled_at_{}, next_hello_{kNever};

  // ---- leaders
  Followers followers_;
  bool ready_ = false;
  std::uint64_t own_first_ = 0;  // index of the entry that opened this term
  std::uint64_t round_ = 0;
  Instant next_broadcast_{kNever};
  std::deque<Pending> pending_;
  std::deque<Read> reads_;
  std::optional<Transfer> transfer_;
};

}  // namespace dtrain::raft
