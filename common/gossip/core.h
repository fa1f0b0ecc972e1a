// The inside of Membership: one state machine, divided into files by topic.
//
//   membership.cpp   the public face: step, deadline, views
//   receiving.cpp    a message or an event of a link arrives
//   merging.cpp      what rumours and synced rows do to the table (rules 1, 3, 6, 14)
//   accusations.cpp  suspicion, gone, down, dead, refuting, freezing, stalls (rules 2, 4, 5, 16 to 18)
//   probing.cpp      pings, helpers, nacks, pongs (rules 7 to 10)
//   joining.cpp      join, seeds, retries of members that do not answer (rules 12, 13), what the record holds
//   record.cpp       the record's bytes
//   admission.cpp    who may take a name or an address
//   syncing.cpp      state sync
//   telling.cpp      rumours out, links to keep
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/gossip/lag.h"
#include "common/gossip/local_health.h"
#include "common/gossip/member_table.h"
#include "common/gossip/membership.h"
#include "common/gossip/neighbours.h"
#include "common/gossip/probe_order.h"
#include "common/gossip/rules.h"
#include "common/gossip/rumour_queue.h"
#include "common/gossip/suspicion.h"
#include "common/gossip/timers.h"

namespace dtrain::gossip {

class Core {
 public:
  Core(Self self, MembershipOptions options, Rng rng, Log& log);

  void step(Instant now, const Input& input, Outputs& out);
  Instant deadline() const { return timers_.next(); }
  void preload(const std::vector<wire::Row>& rows);
  void preload(const Core& like);

  const MemberTable& table() const { return table_; }
  const MemberId& id() const { return id_; }
  const MemberId& cluster() const { return cluster_; }
  std::uint64_t incarnation() const { return incarnation_; }
  std::uint32_t local_health() const { return health_.score(); }
  const Counters& counters() const { return counters_; }
  bool frozen() const { return frozen_; }
  const std::map<MemberId, wire::IdentityPtr>& absent() const { return absent_; }
  std::size_t memory_bytes() const;
  // the member with that name; among several, the one whose state is the most alive
  MemberTable::Slot named(std::string_view name) const;
  std::string seen_elsewhere() const;

 private:
  using Slot = MemberTable::Slot;
  using State = wire::MemberState;
  static constexpr Slot kNone = MemberTable::kNone;

  enum class Phase : std::uint8_t {
    created,  // no step yet
    waiting,  // belongs to no cluster: asks its seeds
    member,
    stopping,  // sent "down (restarting)"
    left,      // left for good
  };

  // One ping under way.
  struct Probe {
    enum class Why : std::uint8_t {
      watch,      // a verdict on the target follows
      question,   // the last ping before a suspicion ends; an accused target refutes in its answer
      roll_call,  // to a neighbour before this node's verdict on another: is this node cut off?
      retry,      // to a dead or down member: only an answer counts
      relay,      // for a node that asked for help
    } why = Why::watch;
    MemberId target;
    std::uint64_t incarnation = 0;  // of the target, as known at the start
    std::uint64_t boot = 0;         // boot_hash of the target
    wire::Endpoint address;
    Instant started{};
    bool in_turn = false;
    bool cold = false;    // its link was not up yet: a time-out is no evidence
    bool helped = false;  // helpers were asked
    std::uint32_t asked = 0, nacks = 0;
    // relay only
    ReplyPath reply = 0;
    wire::Endpoint asker;
    MemberId asker_id;
    std::uint64_t asker_sequence = 0;
  };
  struct Pulse {  // when a neighbour pings: it pings its neighbours in turn, so this node at regular times
    Instant last{};
    Duration interval{};  // 0: not known yet
  };
  struct Gone {  // who saw a member's process gone
    std::uint64_t incarnation = 0;
    std::vector<MemberId> witnesses;
  };
  struct Check {  // a CheckGone in flight
    MemberId member;
    std::uint64_t incarnation = 0;
    Instant asked{};
  };
  struct SeenAt {           // an address at which peers see this node
    std::set<MemberId> by;  // at most kSeers; only the latest statement of each counts
    bool said = false;
  };
  struct Tombstone {  // of a member without a row
    std::uint64_t incarnation = 0;
    Instant until{};
    bool reaped = false;  // its row was here; false: only an accusation of an unknown member was heard
  };

  enum class Topic : std::uint8_t { looked_around, called_roll, missed, told, told_fact, full, copied, refuted_copy, conflict, refused };

  static constexpr Duration kLinksSpread = 300ms;  // links change at most this often, at a random phase
  static constexpr Duration kSaveDelay = 10s;      // the record is saved at most this often
  static constexpr Duration kSyncSoon = 1s;        // delay after a member came back, at a random phase
  static constexpr Duration kFreezeCheck = 250ms;
  static constexpr Duration kFrozenSync = 5s;        // between two syncs while frozen
  static constexpr Duration kPulseGrace = 250ms;     // a ping may be this late before it counts as missed
  static constexpr Duration kCheckAgain = 1s;        // the same address is not checked more often
  static constexpr Duration kBuryAgain = 60s;        // a tombstone's time is renewed at most this often
  static constexpr std::size_t kChecks = 1024;       // in flight; beyond, all are forgotten, and asked for again when needed
  static constexpr std::size_t kProbes = 1024;       // in flight; beyond, none is begun
  static constexpr std::size_t kSeers = 3;           // peers that must agree before this node reports that they see it at another address
  static constexpr std::size_t kSeenAddresses = 8;   // addresses that are counted; further ones are not
  static constexpr std::uint32_t kSilences = 3;      // unanswered checks of a down member's host before the host counts as silent
  static constexpr std::uint32_t kProbesJudged = 8;  // of this node's own last probes, to judge whether it is cut off
  // Highest life that counts: the incarnations and versions made from it stay far from their limits.
  static constexpr std::uint64_t kMostLives = std::uint64_t{1} << 29;
  static constexpr std::uint64_t kAlways = ~std::uint64_t{0};  // an incarnation that no member reaches

  // ---- membership.cpp
  void start();
  void act(const Tick&) {}
  void arm();
  void run_timers();
  void run(const Timers::Key& timer);
  Duration own_lag();
  bool overloaded();
  Duration phase(Duration period);     // rule 12: a random phase within the period
  Duration jittered(Duration period);  // 3/4 to 5/4 of the period
  void change(ChangeKind kind, const wire::Identity& who, std::uint64_t incarnation, std::string detail = {});
  void change_to(State state, const wire::Identity& who, std::uint64_t incarnation, std::string detail);
  void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) { log_.write(level, event, fields); }
  // True at most once in `every` for this topic and subject; bounded memory.
  bool once(Topic topic, const MemberId& subject, Duration every);
  const Member& self_row() const { return table_.at(self_slot_); }
  bool with(Rule rule) const { return rules_.hold(rule); }
  bool active() const { return phase_ == Phase::member; }

  // ---- receiving.cpp
  void act(const Received& message);
  void act(const Dropped& dropped);
  void act(const LinkLost& link);
  void act(const LinkUp& link);
  void act(const GoneChecked& checked);
  void act(const SendFailed& failed);
  void act(const FactChanged& fact);
  void act(const IdentityChanged& changed);
  void act(const LeaveAsked&);
  void act(const RemoveAsked& remove);
  void act(const StopAsked&);
  void act(const OthersLost&);
  void receive(const Received& m, const wire::Gossip& body);
  void merge_all(const std::vector<wire::Rumour>& rumours, const MemberId& teller);
  void leave(Slot slot, std::string reason);
  void announce_end(wire::Rumour rumour);
  Slot in_service_at(const wire::Endpoint& address) const;
  // Tells a sender what is said of it, if it does not know.
  void answer_stale(const Received& m);

  // ---- merging.cpp. The functions return true if the rumour was news, which is then passed on.
  bool merge(const wire::Rumour& rumour, const MemberId& teller);
  bool merge_alive(const wire::Rumour& rumour, const MemberId& teller);
  void merge_about_myself(const wire::Rumour& rumour);
  void raise_fact(wire::FactKey key, std::uint64_t above);
  bool merge_final(const wire::Rumour& rumour);  // down, dead, left
  bool merge_fact(const wire::Rumour& rumour);
  void merge_row(const wire::Row& row, const MemberId& teller);
  void merge_state(const wire::Row& row, const MemberId& teller);
  void know_before_accusing(Slot slot, const wire::Row& row, const MemberId& teller);
  void insert(Member member, std::string detail);
  // The one place where a row changes its state, incarnation or identity.
  void transition(Slot slot, State state, std::uint64_t incarnation, const wire::IdentityPtr& identity, std::string detail);
  void each_candidate(const Rings::Visit& visit) const;  // candidates for neighbours
  std::uint64_t transmission_members() const;
  void absent_from_service(const Member& member);
  void forget_absent(const MemberId& id);
  void reap(const MemberId& id);
  bool buried(const MemberId& id, std::uint64_t incarnation) const;
  void bury(const MemberId& id, std::uint64_t incarnation, bool reaped);
  Duration kept_for(State state) const;  // how long a row stays in that state before it is reaped
  void members_changed(bool neighbours_changed);

  // ---- accusations.cpp
  bool merge_suspect(const wire::Rumour& rumour);
  bool merge_gone(const wire::Rumour& rumour);
  void accuse(const MemberId& id, std::uint64_t incarnation);  // with this node's own suspicion
  void begin_suspicion(Slot slot, std::uint64_t incarnation, const MemberId& accuser);
  void look_around();
  void call_roll();
  bool roll_call_decides() const;
  void accuse_told(const MemberId& id, std::uint64_t incarnation);  // with a suspicion that a synced row reports
  MemberId counted(const MemberId& accuser);
  void time_suspicion(const MemberId& id, const Suspicion& suspicion);
  void forget_suspicion(const MemberId& id);
  void restart_suspicions();  // each suspect gets the full time again and is told of the suspicion
  void suspicion_ends(const MemberId& id);
  void decide(Slot slot, wire::RumourKind kind, std::uint64_t incarnation,
              std::string reason);                                                     // decides down or dead, and spreads it
  bool count_witness(Gone& gone, std::uint64_t incarnation, const MemberId& witness);  // true: the witness is new
  void recount_gone();
  std::size_t witnesses_wanted(const MemberId& subject) const;
  bool silent_witness(Slot slot, std::uint64_t incarnation, const MemberId& witness);
  void check_gone(const Member& member);
  void ask_to_confirm(const Member& member);  // asks neighbours to probe the member now (confirm on demand)
  void refute(std::uint64_t accused, wire::RumourKind accusation, const MemberId& by);
  void rise_above(std::uint64_t incarnation);  // raises this node's incarnation above that one; stays at the limit
  void announce_myself();
  std::string name_of(const MemberId& id) const;
  void begin_freeze(std::string why);
  void watch_freeze();
  bool many_suspected() const;
  bool without_quorum(std::uint32_t open = 0) const;
  void stalled(Duration gap);

  // ---- probing.cpp
  void probe_next();
  void feel_pulse(const MemberId& from);  // `from` pinged this node in its turn
  void pulse_missed(const MemberId& of);
  Duration longest_turn() const;
  bool probe(Slot slot, Probe::Why why, bool in_turn = false);  // false: too many are in flight
  std::uint64_t ping(Probe probe);                              // returns its sequence; 0: too many are in flight
  void ask(std::uint64_t sequence, const Probe& probe);
  bool linked(const Member& member) const;  // this node's link to the member is likely to be warm
  void judge_probes(bool failed);
  void time_probe(std::uint64_t sequence, const Probe& probe);
  void ask_helpers(std::uint64_t sequence);
  void probe_fails(std::uint64_t sequence);
  void end_probe(std::uint64_t sequence);
  bool known_silent(const MemberId& id) const;
  std::vector<Slot> some_others(const MemberId& target, std::uint32_t count);
  std::optional<Slot> random_member(const std::vector<MemberId>& not_these);
  bool probed_already(const MemberId& id) const;
  void nack(std::uint64_t sequence);
  void receive(const Received& m, const wire::Ping& body);
  void receive(const Received& m, const wire::Pong& body);
  void receive(const Received& m, const wire::PingRequest& body);
  void receive(const Received& m, const wire::Nack& body);
  void receive(const Received& m, const wire::ProbeNow& body);
  void seen_as(const std::string& observed_ip, const MemberId& by);
  bool in_service(const MemberId& id) const;

  // ---- joining.cpp
  void join_round();
  void join_contacts();
  void remember_contacts(const MemberRecord& record);
  void prefer_contact(const wire::Endpoint& seed);
  void send_join(const wire::Endpoint& to);
  void act(const SeedsResolved& resolved);
  void retry_next();
  bool retry_away();
  bool retry_absent();
  bool is_member_seed(const wire::Endpoint& seed) const;
  void enter(const MemberId& cluster);
  void receive(const Received& m, const wire::Join& body);
  void receive(const Received& m, const wire::JoinReply& body);
  void save_later(Duration delay);
  void save();
  MemberRecord record() const;
  static std::uint64_t hash_of_record(const MemberRecord& record);

  // ---- admission.cpp
  enum class Verdict : std::uint8_t {
    free,      // no other member has the name or address, or those that have may keep it
    replaces,  // the claimant is the same machine without its old data: the old member leaves
    taken,
  };
  struct Claim {
    Verdict verdict = Verdict::free;
    Slot holder = kNone;
    std::string why;
  };
  // stranger: the claimant asks this node for admission; false: others admitted it.
  Claim claim(const wire::Identity& who, bool stranger) const;
  void give_way(const wire::Identity& to);  // members that must leave for it are made to leave
  void give_way_absent(const wire::Identity& to);
  bool leave_absent(const wire::IdentityPtr& peer, std::uint64_t incarnation, std::string reason);  // false: there is no room for its row
  void report_conflict(const wire::Identity& who, std::uint64_t incarnation, const Claim& claim);

  // ---- syncing.cpp
  void sync_round();
  // unless_known: the sync is skipped if the member is then known at that incarnation.
  void sync_soon(const MemberId& with, std::uint64_t unless_known = kAlways);
  void sync_with(Slot slot);
  Duration sync_period() const;
  bool tells_suspicions() const;
  wire::Gossip accusations();  // some of this node's suspicions, in turn
  void receive(const Received& m, const wire::SyncRoot& body);
  void receive(const Received& m, const wire::SyncSummaries& body);
  void receive(const Received& m, const wire::SyncRows& body);
  void send_rows(const Received& m, const std::vector<Slot>& slots, std::vector<MemberId> wanted);
  std::vector<wire::Row> rows_for_joiner(const MemberId& joiner) const;
  wire::Row row_told(const Member& member) const;

  // ---- telling.cpp
  void tell(wire::Rumour rumour);  // to all members, in batches
  void flush();
  void send(const Member& to, wire::GossipBody body);
  void answer(const Received& m, wire::GossipBody body);
  void send(ReplyPath reply, const wire::Endpoint& to, const MemberId& member, wire::GossipBody body, std::uint64_t correlation = 0);
  std::vector<wire::Rumour> piggyback();
  wire::Rumour accusation_of(const Member& member) const;  // what this node holds against the member; alive if nothing
  wire::Rumour alive_rumour(const Member& member) const;
  void keep_links();
  void links_changed();

  // ---- set once
  MembershipOptions options_;
  Rules rules_;
  Rng rng_;
  Log& log_;
  MemberId id_;
  std::string cluster_name_;
  std::vector<std::string> seeds_;
  MemberId first_cluster_;  // the one in the record, or the one that this node begins; none: it joins one
  bool left_ = false;       // the record says that this node left

  // ---- this node
  Phase phase_ = Phase::created;
  MemberId cluster_;
  wire::IdentityPtr identity_;
  std::uint64_t incarnation_ = 0;
  Slot self_slot_ = kNone;
  LocalHealth health_;
  Lag lag_;
  Instant started_{}, now_{}, last_step_{};
  Outputs* out_ = nullptr;
  Counters counters_;
  Timers timers_;
  bool rearm_ = false;

  // ---- the others
  MemberTable table_;
  Rings rings_;
  ProbeOrder order_;
  RumourQueue queue_;
  std::map<MemberId, Suspicion> suspicions_;
  std::map<MemberId, Instant> questioned_;  // suspects that were asked a last time, with the end of their time to answer
  std::map<MemberId, Gone> gone_;
  std::map<MemberId, Gone> silent_;             // down members whose host does not answer either
  std::map<MemberId, std::uint32_t> silences_;  // consecutive unanswered checks of down members
  std::map<wire::Endpoint, Check> checks_;
  std::map<MemberId, Tombstone> tombstones_;
  std::deque<std::pair<Instant, MemberId>> burials_;  // in order of time
  std::set<MemberId> away_;                           // rows dead or down, retried for ever
  std::map<MemberId, wire::IdentityPtr> absent_;      // peers without a row: from the record's book, or reaped
  std::deque<MemberId> absent_order_;                 // oldest first

  // ---- probing
  std::map<std::uint64_t, Probe> probes_;
  std::uint64_t sequence_ = 0;
  std::uint64_t probe_turn_ = 0;
  std::vector<MemberId> turns_;        // neighbours, in the order in which they are pinged next
  std::uint32_t recent_failures_ = 0;  // one bit for each of this node's last probes, the newest lowest
  std::uint32_t recent_probes_ = 0;    // number of those probes
  std::map<MemberId, Pulse> pulses_;
  // Links that are certainly up: those that this node keeps, and those that just carried a pong. Idle links are
  // closed without a report, so all others count as cold.
  std::set<wire::Endpoint> up_;

  // ---- suspecting many
  bool frozen_ = false;
  Instant frozen_since_{};
  Instant last_pong_{};  // in answer to a probe of this node

  // ---- telling
  Instant next_flush_{};
  Instant paced_{};  // no gossip round before this instant, except quick ones
  std::uint32_t fan_turn_ = 0;
  std::vector<Peer> kept_;

  // ---- joining, retrying
  bool joining_ = false;                  // waits for a JoinReply
  std::vector<wire::Endpoint> contacts_;  // asked in turn
  std::size_t contact_turn_ = 0;
  std::size_t preferred_contacts_ = 0;          // how many of them are asked before the next seed
  std::vector<wire::Endpoint> seed_endpoints_;  // as last resolved
  std::size_t joins_this_round_ = 0;
  std::uint32_t join_rounds_ = 0;
  std::map<std::uint64_t, wire::Endpoint> joins_;    // by correlation: the address that was asked
  std::map<wire::Endpoint, MemberId> seed_members_;  // the member that answered at each address
  std::uint32_t retry_turn_ = 0;
  std::size_t seed_turn_ = 0;
  MemberId retried_away_, retried_absent_;  // the last ones retried
  MemberId accusations_told_;               // the last one sent
  MemberId sync_soon_with_;
  std::uint64_t sync_unless_known_ = 0;
  std::uint64_t saved_ = 0;  // hash of the record as saved

  // ---- saying things once
  std::map<std::pair<Topic, MemberId>, Instant> said_;
  std::map<std::string, SeenAt> seen_as_;  // by address; this node's own address is not among them
  std::uint32_t copies_seen_ = 0;
};

}  // namespace dtrain::gossip
