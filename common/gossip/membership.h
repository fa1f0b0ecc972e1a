// Membership: who belongs to the cluster, who of them is alive, what each says of itself.
//
// SWIM (Das, Gupta, Motivala, DSN 2002) with Lifeguard's refinements (Dadgar, Phillips, Currey, arXiv 1707.00788) over
// connections. Two classes of evidence: a process that is gone (its connection closed and a new one is refused, seen by two)
// is `down` in well under a second; silence needs a suspicion that runs out unrefuted and ends in `dead`.
//
// A sans-IO core: told the time and what happened, it answers with what to do. It owns no clock, descriptor or thread.
// Cost per node does not grow with the cluster: up to eight stable neighbours are probed in turn, rumours are forwarded to
// them, and state sync compares hashes. A row of the table takes at most 48 bytes beside the shared Identity and Facts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/base/time.h"
#include "common/gossip/options.h"
#include "common/wire/gossip.h"
#include "common/wire/peer.h"

namespace dtrain::gossip {

// What outlives the agent. Lost or older: the node still comes back, more slowly.
struct MemberRecord {
  MemberId cluster_id;                    // none: belongs to no cluster
  std::vector<wire::Identity> book;       // peers last known: those in service first; at most 256, and Options::book
  std::uint32_t in_service = 0;           // so many of the book were in service; more than it holds: all
  bool left = false;                      // left for good: does not join by itself again
  std::string encode() const;             // append-only, for the store
  static Result<MemberRecord> decode(std::string_view bytes);
};

struct Self {
  wire::Identity identity;
  std::string cluster_name;
  MemberRecord record;
  bool found = false;                     // no record: this node begins a cluster of its own with `new_cluster_id`
  MemberId new_cluster_id;
  std::vector<std::string> seeds;         // "gpu01", "10.0.0.1:7400": resolved by the agent, anew at each try
  std::vector<wire::Fact> facts;          // values; versions are set here
};

// ---- what happened
// How to answer on the connection that a message came by; 0: none, answer to the sender's address.
using ReplyPath = std::uint64_t;
struct Received {
  wire::PeerHeader header;                // checked (wire/peer.h)
  wire::GossipBody body;
  ReplyPath reply = 0;
  std::string observed_ip;                // of the sender
};
struct Dropped { wire::Drop why = wire::Drop::malformed; std::string from_ip; };  // by the checks before parsing
// Evidence of links that this node opened (to members or addresses).
struct LinkLost { wire::Endpoint to; };     // was up and closed; a CheckGone was not asked yet
struct LinkUp { wire::Endpoint to; };       // handshake done
struct GoneChecked { wire::Endpoint to; enum class Answer : unsigned char { refused, accepts, silent } answer{}; };  // of CheckGone
struct SendFailed { wire::Endpoint to; };   // could not be handed to the network: a failed probe, not a skipped one
struct SeedsResolved { std::vector<wire::Endpoint> endpoints; };  // of ResolveSeeds; may be empty
struct FactChanged { wire::FactKey key{}; std::string value; };   // of this node
struct IdentityChanged { wire::Identity identity; };              // address or key changed while running
struct LeaveAsked {};                       // for good
// leave N / forget-node N by an operator: a down or dead member becomes left; so does a suspect of who is frozen and judges nobody,
// and whom only the record names.
struct RemoveAsked { MemberId member; };
struct StopAsked {};                        // SIGTERM: say "down (restarting)", stay a member
struct Tick {};                             // deadline() was reached
struct OthersLost {};                       // an operator's word that who does not answer is lost: suspects are dead, also while frozen

using Input = std::variant<Received, Dropped, LinkLost, LinkUp, GoneChecked, SendFailed, SeedsResolved, FactChanged,
                           IdentityChanged, LeaveAsked, RemoveAsked, StopAsked, Tick, OthersLost>;

// ---- what to do
struct Send {
  ReplyPath reply = 0;                    // not 0: on that connection
  wire::Endpoint to;                      // else here; opened for it when no link is there
  MemberId member;                        // whom we expect there (its node key); none: a seed, join link
  bool anew = false;                      // on a connection made for it, beside the one that is open
  wire::PeerHeader header;
  wire::GossipBody body;
};
struct Peer { MemberId id; wire::Endpoint address; std::string key_print; };
// The links to keep open and warm, neighbours first; replaces the last list. Others may be closed when idle.
struct KeepLinks { std::vector<Peer> peers; };
struct CheckGone { wire::Endpoint to; };  // one raw connect, without waiting -> GoneChecked
struct ResolveSeeds {};                   // -> SeedsResolved
struct SaveRecord { MemberRecord record; };  // make durable, soon; the newest counts

enum class ChangeKind : std::uint8_t {
  alive, suspect, down, dead, left, restarted, rebooted, refute, conflict, fact, address_mismatch, joined, frozen, thawed, stalled,
  refused,  // by a node that this one asked to be admitted
  moved,    // a member's state is what it was; its address or key is another
};
struct Change {                           // in order of happening; for events, logs and the views
  ChangeKind kind{};
  MemberId id;
  std::string name;
  std::uint64_t incarnation = 0;
  std::string detail;                     // for people: why, what to do next
};

struct Outputs {
  std::vector<Send> sends;
  std::vector<CheckGone> checks;
  std::vector<Change> changes;
  std::optional<KeepLinks> links;
  std::optional<SaveRecord> save;
  bool resolve_seeds = false;
  void clear() { *this = {}; }
};

// ---- what is known
struct MemberView {
  wire::MemberState state{};
  std::uint64_t incarnation = 0;
  const wire::Identity* identity = nullptr;
  const wire::Fact* facts[wire::kFactKeys] = {};  // by key; null: not known
};
struct Counters {
  std::uint64_t drops[wire::kDrops] = {};
  std::uint64_t probes = 0, probe_failures = 0, refutes = 0, rumours_dropped = 0, rumours_sent = 0, syncs = 0,
                rows_synced = 0, members_refused = 0, conflicts = 0, stale_pongs = 0, pings_refused = 0;
};

class Membership {
 public:
  Membership(Self self, Options options, Rng rng, Log& log);
  ~Membership();
  Membership(Membership&&) noexcept;

  // Never blocks, never throws. The first call starts the node at `now` (any input).
  void step(Instant now, const Input& input, Outputs& out);
  Instant deadline() const;               // earliest useful Tick; kNever when nothing waits

  // This node first, then by name. Valid until the next step.
  void each(const std::function<void(const MemberView&)>& visit) const;
  std::optional<MemberView> find(const MemberId& id) const;
  std::optional<MemberView> find(const std::string& name) const;
  struct Counts { std::uint32_t alive = 0, suspect = 0, down = 0, dead = 0, left = 0; };
  Counts counts() const;                  // oneself included
  bool frozen() const;                    // it may be cut off, and judges nobody
  // A peer without a row: the record named it and nobody has since the start, or it was reaped. Null: none such. Until the next step.
  const wire::Identity* absent(const MemberId& id) const;
  const wire::Identity* absent(const std::string& name) const;  // any of that name
  MemberId cluster_id() const;            // none: still waiting to be admitted
  std::uint64_t incarnation() const;
  std::uint32_t local_health() const;     // 0: healthy
  const Counters& counters() const;
  std::string seen_elsewhere() const;     // the address that at least three members see this node at, in place of its own; "": none
  std::size_t memory_bytes() const;       // of tables and queues, for the bounds of the simulator

  // Begins with a table as if state sync had brought it (simulation of large clusters, tests). Before the first step.
  void preload(const std::vector<wire::Row>& rows);
  // The same with the table of another member, which must not have begun to change it: rows are shared until written, so
  // that 10,000 simulated tables of 10,000 rows fit in memory. Replaces what was preloaded; oneself stays.
  void preload(const Membership& like);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain::gossip
