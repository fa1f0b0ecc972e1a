// Packages, between hosts: a host that is given a task and lacks the job's package fetches it from one that has it, and voters
// have those of all active jobs, so that no lost host takes the only copy along.
//
// Here: who is asked, in which order, from which byte on, and what is done with what comes. The bytes go over relayed streams
// (common/relay) and to the disk (WriteBlob), which accepts a blob under its digest only. What was written of one is kept when
// a stream ends: the next source goes on behind it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/node/context.h"
#include "common/node/relays.h"

namespace dtrain::node {

inline constexpr std::size_t kFetchesAtOnce = 4;      // further ones wait
inline constexpr std::size_t kKeptAtOnce = 2;         // of them copies that nobody waits for: further ones wait, others go before
inline constexpr std::size_t kKeepers = 256;          // other agents' requests to keep something; a further one is refused
inline constexpr std::size_t kSpreads = 256;          // clients that wait until voters have their package; likewise
inline constexpr std::size_t kSpreadBytes = 64 << 20; // of their requests together; likewise
inline constexpr Duration kFetchAgain = 1s;           // after all sources failed; doubled each time
inline constexpr Duration kFetchAgainAtMost = 30s;    // up to this
inline constexpr Duration kFetchStalls = 120s;        // nothing came of an open stream for so long: the next source
inline constexpr Duration kLookForKept = 60s;         // voters look again for what they are to have
inline constexpr std::size_t kKeptPerLook = 256;      // at so many, and as many of new jobs until then; the next look goes on

class Packages {
 public:
  Packages(Context& context, Relays& relays) : c_(context), relays_(relays) {}

  // ---- tasks of this host
  void stage(Stage stage);
  // False: the task is to hear it. Else it is staged again when the package is here; not where it is not `wanted` any more.
  bool staged(const Staged& e, bool wanted);
  std::vector<AssignmentId> waiting(JobId job) const;
  void give_up(const AssignmentId& id);  // it waits no more
  // What tasks are to hear: how their staging ended; why they wait.
  std::vector<Staged> take_staged() { return std::exchange(staged_, {}); }
  std::vector<std::pair<AssignmentId, std::string>> take_reasons() { return std::exchange(reasons_, {}); }

  // ---- other agents
  void keep(const Request& e, const wire::KeepBlobRequest& q);

  // ---- clients: a majority of the voters is to have the package before its job is in the ledger
  // True: it has, or has to have nothing; this request may go on. Else it is answered with an error, or handled anew.
  bool spread(const Request& e, const std::string& digest, const std::string& could_not);
  std::vector<Request> take_spread() { return std::exchange(ready_, {}); }

  // ---- what happens
  void job_changed(JobId id);
  void answered(const RelayAnswered& e);
  bool ended(const RelayEnded& e);  // false: none of ours
  void written(const BlobWritten& e);
  void found(const BlobFound& e);
  void closed(ConnectionId connection);
  void members_changed();
  // Before the end of each turn.
  void drive();
  Instant deadline() const;

 private:
  struct Keeper {
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    NodeId host;  // that asked
  };
  struct Fetch {
    std::map<AssignmentId, Stage> stages;
    std::vector<Keeper> keepers;
    bool kept = false;           // wanted by the ledger
    bool spread = false;         // a client's request is to count this voter

    ConnectionId writer = 0;     // 0: nothing of it was written
    std::uint64_t have = 0;      // bytes given to the disk
    bool complete = false;       // with the last of them
    ConnectionId part = 0;       // the stream; 0: none
    std::uint64_t asked = 0;     // number of the request on it: answers of earlier ones may be under way still
    NodeId source;               // of it
    Instant came{};              // when something of it last came
    std::deque<NodeId> sources;  // to be asked yet in this round
    bool in_round = false;
    bool looks = false;          // at the own disk, with which a round begins
    std::string problem;         // the first of this round
    std::uint32_t rounds = 0;    // in a row that failed
    Instant retry{};             // the next begins then
    bool awaited() const { return spread || !stages.empty() || !keepers.empty(); }
    bool wanted() const { return kept || awaited(); }
    bool busy() const { return part != 0 || complete || looks; }
  };
  struct Slots {
    std::size_t busy = 0, kept = 0;  // of them those that nobody waits for
    bool room_for(const Fetch& f) const { return busy < kFetchesAtOnce && (f.awaited() || kept < kKeptAtOnce); }
    void count(const Fetch& f) {
      busy += f.busy() ? 1 : 0;
      kept += f.busy() && !f.awaited() ? 1 : 0;
    }
  };
  using Fetches = std::map<std::string, Fetch>;
  // One package on its way to the voters, for all who wait for that: a sweep submits one package a hundred times.
  struct Spread {
    struct Waiting {
      Request request;
      std::string could_not;
    };
    std::vector<Waiting> waiting;
    std::string digest;
    enum class Own : unsigned char { known, looked_for, fetched } own{};  // this voter's copy
    std::map<ConnectionId, NodeId> asked;  // parts
    std::size_t have = 0, needed = 0, of = 0;
    std::string problem;         // the first
    bool over = false;           // nobody waits; the rest may finish
    bool fails() const { return own != Own::looked_for && have + asked.size() + (own == Own::fetched ? 1 : 0) < needed; }
  };

  std::deque<NodeId> sources_of(const std::string& digest, const Fetch& f) const;
  Slots slots() const;
  void next_source(const std::string& digest, Fetch& f);
  void round_failed(const std::string& digest, Fetch& f);
  void add_keepers(Fetch& f, const std::vector<Keeper>& keepers);
  void note_problem(Fetch& f, const std::string& cause);
  void start_over(Fetch& f);
  void close(Fetch& f);
  void disk_failed(const std::string& digest, Fetch& f, const Error& error);
  void is_here(Fetches::iterator f);
  Fetches::iterator of_writer(ConnectionId writer);
  void settle(Spread& s);
  void own_copy(const std::string& digest, const std::string& problem);
  void look_for_kept();
  bool votes() const;

  Context& c_;
  Relays& relays_;
  std::map<AssignmentId, Stage> staging_;                // asked of the agent, with a package
  Fetches fetches_;                                      // by digest
  std::map<std::string, std::vector<Keeper>> finding_;   // FindBlob for them is under way
  std::map<ConnectionId, Spread> spreads_;               // by the connection of their parts
  std::set<std::pair<ConnectionId, std::uint64_t>> had_; // requests whose package is where it is to be
  std::vector<Request> ready_;
  std::vector<Staged> staged_;
  std::vector<std::pair<AssignmentId, std::string>> reasons_;
  std::set<std::string> kept_;                           // digests of active jobs
  std::string looked_last_;
  std::size_t looked_since_ = 0;                         // for new jobs, since the last look
  Instant next_look_ = kNever;
};

}  // namespace dtrain::node
