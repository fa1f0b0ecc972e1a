// Moves packages between hosts: a host that gets a task and lacks the job's package fetches it from a host that has
// it, and voters keep the packages of all active jobs, so that no lost host takes the only copy with it.
//
// This class decides which host is asked, in which order, from which byte on, and what becomes of the answer. The
// bytes travel over relayed streams (common/relay) to the disk (WriteBlob), which accepts a blob only under its own
// digest. What was written of a blob is kept when a stream ends: the next source continues from there.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/node/relays.h"
#include "common/node/staging.h"

namespace dtrain::node {

inline constexpr std::size_t kFetchesAtOnce = 4;  // further fetches wait
// of kFetchesAtOnce, copies that nobody waits for: further ones wait, and awaited fetches go first
inline constexpr std::size_t kKeptAtOnce = 2;
inline constexpr std::size_t kKeepers = 256;  // requests of other agents to keep a package; a further one is refused
// clients that wait until voters have their package; a further one is refused
inline constexpr std::size_t kSpreads = 256;
inline constexpr std::size_t kSpreadBytes = 64 << 20;  // of these clients' requests together; a further one is refused
inline constexpr Duration kFetchAgain = 1s;            // pause after all sources failed; doubled each time,
inline constexpr Duration kFetchAgainAtMost = 30s;     // up to this
// an open stream that delivers nothing for so long is given up for the next source
inline constexpr Duration kFetchStalls = 120s;
inline constexpr Duration kLookForKept = 60s;  // how often voters look for packages that they should have
// packages checked in one look, and as many of new jobs before the next; the next look continues after them
inline constexpr std::size_t kKeptPerLook = 256;

class Packages final : public StagingStep {
 public:
  Packages(Context& context, Staging& staging, Relays& relays) : StagingStep(context, staging, "package"), relays_(relays) {}

  // ---- for tasks of this host: begin() passes at once, because the agent sees whether the package is here
  bool provides(const StagedTask& task, const Staged& e) override;
  void give_up(const AssignmentId& id) override;

  // ---- for other agents
  void keep(const Request& e, const wire::KeepBlobRequest& q);

  // ---- for clients: a majority of the voters must have the package before its job enters the ledger
  //
  // Returns true if they have it, or if there is no package: the request may go on. Otherwise the request is answered
  // with an error later, or comes again as an event.
  bool spread(const Request& e, const std::string& digest, const std::string& could_not);

  // ---- what happens
  void job_changed(JobId id);
  void relay_answered(const RelayAnswered& e) override;
  void relay_ended(const RelayEnded& e) override;
  void blob_written(const BlobWritten& e) override;
  void found(const BlobFound& e);
  void closed(ConnectionId connection) override;
  void members_changed() override;
  void drive() override;
  Instant deadline() const override;

 private:
  struct Keeper {
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    NodeId host;  // that asked
  };
  struct Fetch {
    std::map<AssignmentId, std::string> waiting;  // tasks of this host, with the names of their jobs
    std::vector<Keeper> keepers;
    bool kept = false;    // the ledger wants a copy here
    bool spread = false;  // a client's request waits for this voter's copy

    OwnConnection writer;        // none: nothing was written
    std::uint64_t have = 0;      // bytes given to the disk
    bool complete = false;       // the last byte was given to the disk
    ConnectionId part = 0;       // the open stream; 0: none
    std::uint64_t asked = 0;     // number of the request on that stream: answers to earlier requests may still arrive
    NodeId source;               // the host that the stream comes from
    Instant came{};              // when the stream last delivered something
    std::deque<NodeId> sources;  // hosts that are yet to be asked in this round
    bool in_round = false;
    bool looks = false;        // this host's own disk is being asked, with which each round begins
    std::string problem;       // the first problem of this round
    std::uint32_t rounds = 0;  // failed rounds in a row
    Instant retry{};           // when the next round begins
    bool awaited() const { return spread || !waiting.empty() || !keepers.empty(); }
    bool wanted() const { return kept || awaited(); }
    bool busy() const { return part != 0 || complete || looks; }
  };
  struct Slots {
    std::size_t busy = 0, kept = 0;  // kept: of the busy ones, those that nobody waits for
    bool room_for(const Fetch& f) const { return busy < kFetchesAtOnce && (f.awaited() || kept < kKeptAtOnce); }
    void count(const Fetch& f) {
      busy += f.busy() ? 1 : 0;
      kept += f.busy() && !f.awaited() ? 1 : 0;
    }
  };
  using Fetches = std::map<std::string, Fetch>;
  // One package on its way to the voters, for all clients that wait for it: a sweep submits the same package a hundred times.
  struct Spread {
    struct Waiting {
      Request request;
      std::string could_not;
    };
    OwnConnection connection;
    std::vector<Waiting> waiting;
    std::string digest;
    enum class Own : unsigned char { known, looked_for, fetched } own{};  // this voter's copy
    std::map<ConnectionId, NodeId> asked;                                 // the parts at the other voters
    std::size_t have = 0, needed = 0, of = 0;
    std::string problem;  // the first problem
    bool over = false;    // nobody waits any more; the parts that are open may finish
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

  Relays& relays_;
  Fetches fetches_;                                       // by digest
  std::map<std::string, std::vector<Keeper>> finding_;    // keepers for which a FindBlob is under way
  std::map<ConnectionId, Spread> spreads_;                // by their connections
  std::set<std::pair<ConnectionId, std::uint64_t>> had_;  // requests whose package is where it must be
  std::set<std::string> kept_;                            // digests of the active jobs' packages
  std::string looked_last_;
  std::size_t looked_since_ = 0;  // packages of new jobs that were checked since the last look
  Instant next_look_ = kNever;
};

}  // namespace dtrain::node
