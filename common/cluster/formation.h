// Formation: machines that belong to no cluster and name each other as founders begin one cluster together, and never
// two.
//
// Atomic commitment in two phases (Gray, "Notes on Data Base Operating Systems", 1978), without a coordinator whose
// loss would block the others for ever. When all founders are reachable and none belongs to a cluster, the one with
// the smallest id proposes a cluster id. Each founder promises it durably, and holds one promise at a time. When all
// have promised, the proposer begins the log (raft::found), and the others follow once they see that it has begun. A
// promise is withdrawn, durably, when the founding cannot succeed any more, because a founder lost its disk and with
// it its id. What was withdrawn is never promised again nor begun, so a founding is void for ever once a majority of
// its voters withdrew it. docs/consensus.md has the argument.
//
// A sans-IO core: it is told the time and what happened, and answers with what to do. It owns no clock, descriptor or
// thread. Malformed reports of a founder are counted and dropped, but founders are not Byzantine. Messages may be
// lost, repeated, reordered and delayed for any time.
//
// The owner must carry out Outputs in the order of the steps; a Persist is atomic, at most one is in flight, and it
// is answered by Persisted or PersistFailed unless the process ends.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/base/broken_rule.h"
#include "common/base/result.h"
#include "common/base/rng.h"
#include "common/base/time.h"
#include "common/cluster/formation_rules.h"
#include "common/raft/raft.h"
#include "common/wire/formation.h"

namespace dtrain::cluster::formation {

using Seat = std::uint16_t;  // index of a founder's name among all names in ascending order, from 0
using wire::FormationReport;
using wire::Founder;
using wire::Founding;

struct FormationOptions {
  Duration ask_every = 500ms;
  Duration fresh = 2s;       // a founder that did not answer for so long counts as unreachable
  BrokenRule broken_rule{};  // --break. Empty in production
};

// What a founder must never forget. Fields are only ever appended, for the store.
struct Record {
  Founding promise;                 // none: this founder is free
  bool started = false;             // its log began here
  std::vector<Founding> withdrawn;  // earlier promises, oldest first; at most wire::kMostWithdrawn
  bool operator==(const Record&) const = default;
  std::string encode() const;
  static Result<Record> decode(std::string_view bytes);
  template <class V>
  void fields(V& v) {
    v("promise", promise);
    v("started", started);
    v("withdrawn", withdrawn);
  }
};

struct Self {
  MemberId id;
  std::vector<std::string> founders;  // the founders' names as `join` has them, the same on all machines; check_founders()
  std::string name;                   // this machine's name among them
  Record record;
  MemberId cluster;  // the cluster that this machine already belongs to; it then only answers
};
// Checks the founders' names. `expect`: 0: not given.
Status check_founders(const std::vector<std::string>& founders, const std::string& name, std::uint32_t expect);

// ---- what happened
struct Tick {};  // deadline() was reached
// `sender` is authenticated.
struct Received {
  MemberId sender;
  FormationReport report;
};
struct Persisted {};
struct PersistFailed {};  // this founder sends nothing any more until its agent starts again
struct Established {};    // the log that began here has committed an entry
struct Admitted {         // a cluster admitted this machine, after Outputs::join
  MemberId cluster;
};
using Input = std::variant<Tick, Received, Persisted, PersistFailed, Established, Admitted>;

// ---- what to do
struct Send {
  Seat to = 0;
  FormationReport report;
};
struct Persist {
  Record record;
  // Begin the log in the same transaction: raft::found(history_of(), configuration_of()).
  std::optional<Founding> begin;
  // Drop the log that began here, of which no entry was ever committed, and its Raft at once.
  bool abandon = false;
};
struct Join {  // ask this founder's cluster for admission; repeated until Admitted
  MemberId cluster;
  Seat seat = 0;
};
struct Outputs {
  std::vector<Send> sends;
  std::optional<Persist> persist;
  std::optional<Join> join;
  void clear() { *this = {}; }
};

raft::History history_of(const Founding& founding);
// 1, 3 or 5 voters, by council_size(), with the smallest ids; the others are learners.
raft::Configuration configuration_of(const Founding& founding);

struct Counters {
  std::uint64_t dropped = 0;  // malformed reports
  std::uint64_t proposed = 0, withdrawn = 0, abandoned = 0;
};

class Formation {
 public:
  // check_founders() must hold.
  Formation(Self self, FormationOptions options, Rng rng);

  // Never blocks, never throws. The first call starts the core at `now`. Appends to `out`.
  void step(Instant now, const Input& input, Outputs& out);
  Instant deadline() const;  // the earliest useful Tick; kNever: nothing waits

  // `form --without h3`: an operator says that these founders will not come. Takes effect with the next step.
  Status form_without(const std::vector<std::string>& names);

  const MemberId& cluster() const { return cluster_; }  // the cluster that this machine belongs to; none yet
  const Record& record() const { return record_; }      // the record that is durable or being written
  const Counters& counters() const { return counters_; }
  std::string status() const;  // what is waited for and what to do, for people; "": nothing is waited for

 private:
  struct Peer {  // the founder in one seat
    MemberId holder;
    FormationReport report;  // its last report that answers this round
    Instant heard{};
    std::uint64_t round = 0;  // its round, to be echoed
    bool answers = false;     // it is owed an answer to a question
  };
  using Seats = std::vector<Seat>;

  // ---- formation.cpp
  void act(const Tick&) {}
  void act(const Received& received);
  void act(const Persisted&);
  void act(const PersistFailed&) { mute_ = true; }
  void act(const Established&) { established_ = true; }
  void act(const Admitted& admitted);
  void new_round();
  void ask();
  void send(Seat to, bool asks);
  FormationReport report(Seat to, bool asks) const;
  void commit(std::optional<Founding> begin = {}, bool abandon = false);
  bool with(Rule rule) const { return rules_.hold(rule); }

  // ---- formation_decide.cpp
  void decide();
  void decide_promised();
  void decide_free();
  void watch_proposer();
  bool may_begin() const;
  bool withdraws() const;
  bool proposer_withdraws() const;
  bool follower_withdraws() const;
  bool someone_began(const Founding& founding) const;
  std::optional<Join> cluster_to_join() const;
  void accept_or_propose();
  bool acceptable(const Founding& founding, const MemberId& proposer) const;
  bool is_void(const Founding& founding) const;  // a majority of its voters withdrew it
  bool all_void() const;
  void begin();
  void withdraw();
  void abandon();

  // ---- who is there
  bool fresh(Seat seat) const;  // the founder answered this round lately; this machine itself always counts
  Seats wish() const;           // an operator's wish, given here or on another founder; empty: none
  Seats wanted() const;         // seats of the cluster that would be begun now
  bool complete(const Seats& seats) const;
  std::vector<Founder> holders(const Seats& seats) const;

  MemberId id_;
  std::vector<std::string> names_;
  std::string founders_;  // names_, joined by commas
  Seat seat_ = 0;
  Record record_;
  MemberId cluster_;
  FormationOptions options_;
  Rules rules_;
  Rng rng_;
  Counters counters_;

  Instant now_{};
  Outputs* out_ = nullptr;
  bool begun_ = false, established_ = false, persisting_ = false, mute_ = false;
  std::uint64_t round_ = 0;
  Instant next_ask_{};
  bool proposer_gone_ = false, doubts_ = false;
  Seats own_wish_;
  std::vector<Peer> peers_;                              // by seat; this machine's own is not used
  std::map<MemberId, std::set<MemberId>> withdrawn_by_;  // by founding promised here: the founders that withdrew it
  std::string others_founders_;                          // other names that a founder gave instead
  Instant others_named_{};
};

}  // namespace dtrain::cluster::formation
