// Membership: who belongs to the cluster, which members are alive, and what each says of itself.
//
// SWIM (Das, Gupta, Motivala, DSN 2002) with Lifeguard's refinements (Dadgar, Phillips, Currey, arXiv 1707.00788)
// over connections. There are two classes of evidence. A process that is gone (its connection closed and a new one is
// refused, as two members saw) makes its member `down` in well under a second. Silence needs a suspicion that runs
// out unrefuted, and makes the member `dead`.
//
// A sans-IO core: it is told the time and what happened, and answers with what to do. It owns no clock, descriptor or
// thread. The cost for each node does not grow with the cluster: up to eight stable neighbours are probed in turn,
// rumours are forwarded to them, and state sync compares hashes. A row of the table takes at most 48 bytes besides
// the shared Identity and Facts.
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

// What this node keeps on its disk. With an old or lost record the node still comes back, but more slowly.
struct MemberRecord {
  MemberId cluster_id;               // none: this node belongs to no cluster
  std::vector<wire::Identity> book;  // peers last known, those in service first; at most 256, and MembershipOptions::book
  std::uint32_t in_service = 0;      // how many peers were in service; may be more than the book holds
  bool left = false;                 // this node left for good and does not join again by itself
  std::string encode() const;        // append-only, for the store
  static Result<MemberRecord> decode(std::string_view bytes);
};

struct Self {
  wire::Identity identity;
  std::string cluster_name;
  MemberRecord record;
  bool found = false;  // there is no record: this node begins a cluster of its own with `new_cluster_id`
  MemberId new_cluster_id;
  std::vector<std::string> seeds;  // "gpu01", "10.0.0.1:7400": resolved by the agent, anew at each try
  std::vector<wire::Fact> facts;   // values; Membership sets the versions
};

// ---- what happened
//
// Names the connection that a message came by, for the answer; 0: none, the answer goes to the sender's address.
using ReplyPath = std::uint64_t;
struct Received {
  wire::PeerHeader header;  // checked (wire/peer.h)
  wire::GossipBody body;
  ReplyPath reply = 0;
  std::string observed_ip;  // of the sender
};
struct Dropped {
  wire::Drop why = wire::Drop::malformed;
  std::string from_ip;
};  // by the checks before parsing
// Evidence about links that this node opened.
struct LinkLost {
  wire::Endpoint to;
};  // the link was up and closed; a CheckGone is yet to be asked for
struct LinkUp {
  wire::Endpoint to;
};  // the handshake is done
// the answer to CheckGone
struct GoneChecked {
  wire::Endpoint to;
  enum class Answer : unsigned char { refused, accepts, silent } answer{};
};
struct SendFailed {
  wire::Endpoint to;
};  // the message could not be handed to the network: a failed probe, not a skipped one
struct SeedsResolved {
  std::vector<wire::Endpoint> endpoints;
};  // the answer to ResolveSeeds; may be empty
struct FactChanged {
  wire::FactKey key{};
  std::string value;
};  // a fact of this node
struct IdentityChanged {
  wire::Identity identity;
};                     // this node's address or key changed while it runs
struct LeaveAsked {};  // this node leaves for good
// An operator's `leave N` or `forget-node N`: a down or dead member becomes left; so does a suspect, if this node is
// frozen and judges nobody, and a member that only the record names.
struct RemoveAsked {
  MemberId member;
};
struct StopAsked {};  // SIGTERM: send "down (restarting)" and stay a member
struct Tick {};       // deadline() was reached
// an operator says that members which do not answer are lost: suspects become dead, even while frozen
struct OthersLost {};

using Input = std::variant<Received, Dropped, LinkLost, LinkUp, GoneChecked, SendFailed, SeedsResolved, FactChanged, IdentityChanged,
                           LeaveAsked, RemoveAsked, StopAsked, Tick, OthersLost>;

// ---- what to do
struct Send {
  ReplyPath reply = 0;  // not 0: send on that connection
  wire::Endpoint to;    // otherwise send here, opening a link if there is none
  MemberId member;      // the member expected there (its node key); none: a seed, over a join link
  bool anew = false;    // on a new connection besides the open one
  wire::PeerHeader header;
  wire::GossipBody body;
};
struct Peer {
  MemberId id;
  wire::Endpoint address;
  std::string key_print;
};
// The links to keep open and warm, neighbours first; replaces the previous list. Other links may be closed when idle.
struct KeepLinks {
  std::vector<Peer> peers;
};
struct CheckGone {
  wire::Endpoint to;
};                       // one bare connect, without waiting -> GoneChecked
struct ResolveSeeds {};  // -> SeedsResolved
struct SaveRecord {
  MemberRecord record;
};  // make durable soon; the newest counts

enum class ChangeKind : std::uint8_t {
  alive,
  suspect,
  down,
  dead,
  left,
  restarted,
  rebooted,
  refute,
  conflict,
  fact,
  address_mismatch,
  joined,
  frozen,
  thawed,
  stalled,
  refused,  // a node refused to admit this one
  moved,    // a member's address or key changed, but not its state
};
struct Change {  // in order of time; for events, logs and the views
  ChangeKind kind{};
  MemberId id;
  std::string name;
  std::uint64_t incarnation = 0;
  std::string detail;  // for people: why, what to do next
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
  bool agent_ended_first = false;                 // dead: this node saw before that its agent was down while its host was up
};
struct Counters {
  std::uint64_t drops[wire::kDrops] = {};
  std::uint64_t probes = 0, probe_failures = 0, refutes = 0, rumours_dropped = 0, rumours_sent = 0, syncs = 0, rows_synced = 0,
                members_refused = 0, conflicts = 0, stale_pongs = 0, pings_refused = 0;
};

class Membership {
 public:
  Membership(Self self, MembershipOptions options, Rng rng, Log& log);
  ~Membership();
  Membership(Membership&&) noexcept;

  // Never blocks, never throws. The first call starts the node at `now` (any input).
  void step(Instant now, const Input& input, Outputs& out);
  Instant deadline() const;  // earliest useful Tick; kNever when nothing waits

  // This node first, then by name. Valid until the next step.
  void each(const std::function<void(const MemberView&)>& visit) const;
  std::optional<MemberView> find(const MemberId& id) const;
  std::optional<MemberView> find(const std::string& name) const;
  struct Counts {
    std::uint32_t alive = 0, suspect = 0, down = 0, dead = 0, left = 0;
  };
  Counts counts() const;  // including this node
  bool frozen() const;    // this node may be cut off, and judges nobody
  // A peer without a row: the record named it and no member has since the start, or its row was reaped. nullptr:
  // there is none. Valid until the next step.
  const wire::Identity* absent(const MemberId& id) const;
  const wire::Identity* absent(const std::string& name) const;  // any peer of that name
  MemberId cluster_id() const;                                  // none: this node waits for admission
  std::uint64_t incarnation() const;
  std::uint32_t local_health() const;  // 0: healthy
  const Counters& counters() const;
  std::string seen_elsewhere() const;  // the address at which at least three members see this node, if it is not its own; "": none
  std::size_t memory_bytes() const;    // of tables and queues, for the bounds of the simulator

  // Begins with a table as if state sync had brought it (for simulations of large clusters and tests). Only before
  // the first step.
  void preload(const std::vector<wire::Row>& rows);
  // Begins with the table of another member that has not changed it yet: rows are shared until written, so that
  // 10,000 simulated tables of 10,000 rows fit in memory. Replaces what was preloaded; this node's own row stays.
  void preload(const Membership& like);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain::gossip
