// What agents say to each other about who is alive and what is free.
//
// Identity and Fact are immutable once made and shared by pointer: a simulated cluster holds each once, however many
// members know it. encode_gossip()/decode_gossip() (gossip_codec.cpp) write bodies as append-only arrays: a shorter array leaves
// defaults, a longer one is cut; unknown rumour kinds are skipped. Limits are checked before anything is allocated.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/member_id.h"
#include "common/base/result.h"
#include "common/base/time.h"

namespace dtrain::wire {

inline constexpr std::size_t kGossipMessageBytes = 60 << 10;  // one message on the gossip lane; larger: dropped unread
inline constexpr std::size_t kBulkMessageBytes = 1 << 20;     // one message on the bulk lane; larger: dropped unread
inline constexpr std::size_t kRumoursPerMessage = 512;
inline constexpr std::size_t kRowsPerMessage = 4096;
inline constexpr std::size_t kFactBytes = 16 << 10;  // one fact's value
inline constexpr std::size_t kWordBytes = 64;        // boot id, key fingerprint; longer: refused
inline constexpr std::size_t kProseBytes = 64;       // text for people; longer: cut when written, refused when read
inline constexpr std::size_t kRefusedBytes = 256;    // the same of JoinReply::refused
inline constexpr std::size_t kIpBytes = 45;
// Limits of counters that only grow and that every member adopts: no honest counter comes near, and one below the
// limit can always be raised without wrapping to 0.
inline constexpr std::uint64_t kMostIncarnation = (std::uint64_t{1} << 62) - 1;  // of rumours, rows, JoinReply::accused
inline constexpr std::uint64_t kMostFactVersion = std::uint64_t{1} << 62;        // and at least 1: 0 is "not known"

struct Endpoint {
  std::string ip;          // numeric; IPv6 without brackets
  std::uint16_t port = 0;  // of the gossip lane; bulk is one above
  auto operator<=>(const Endpoint&) const = default;
  std::string text() const;  // "10.0.0.11:7400", "[fd00::1]:7400"
};

// One run of an agent, and where it runs. A changed identity needs a higher incarnation.
struct Identity {
  MemberId id;
  std::string name;
  Endpoint address;                              // advertised
  std::string boot_id;                           // the kernel's
  std::uint64_t life = 0;                        // of the agent, counted on its data directory
  std::uint16_t format_min = 1, format_max = 1;  // wire formats that the agent understands
  std::string key_print;                         // fingerprint of the cluster key that it serves with; "" without CURVE
  bool operator==(const Identity&) const = default;
};
using IdentityPtr = std::shared_ptr<const Identity>;

// What a node says of itself, one key at a time. Only the node itself raises a version; the higher version wins.
// Versions begin anew at (life << 32) with each life.
enum class FactKey : std::uint8_t {
  resources,  // encoded HostFacts: GPUs, CPUs, memory, labels (common/node/host_facts.h)
  free,       // encoded FreeFacts: resources that no task uses
  running,    // hash over the (job, task, generation, attempt) that it runs
  council,    // its role (coordinator, voter, learner or member) and the epoch that it knows
};
inline constexpr std::size_t kFactKeys = 4;
constexpr FactKey enum_last(FactKey) { return FactKey::council; }
struct Fact {
  FactKey key = FactKey::resources;
  std::uint64_t version = 0;
  std::string value;
  bool operator==(const Fact&) const = default;
};
using FactPtr = std::shared_ptr<const Fact>;

// In the order in which they override each other at one incarnation (left overrides all).
enum class MemberState : std::uint8_t { alive, suspect, down, dead, left };
constexpr MemberState enum_last(MemberState) { return MemberState::left; }
const char* to_string(MemberState state);  // "alive", ...
// Alive as far as is known: to be probed, sent rumours and counted.
constexpr bool in_service(MemberState state) { return state == MemberState::alive || state == MemberState::suspect; }

enum class RumourKind : std::uint8_t {
  alive,    // identity, incarnation
  suspect,  // silence: `from` accuses the subject's incarnation
  gone,     // process gone: `from` saw the connection close and a new one refused
  down,     // decided after two gone: agent down, host up
  dead,     // decided after silence
  left,     // the subject left, by its own decision or an operator's
  fact,     // a fact of the subject
};
constexpr RumourKind enum_last(RumourKind) { return RumourKind::fact; }

struct Rumour {
  RumourKind kind = RumourKind::alive;
  MemberId subject;
  std::uint64_t incarnation = 0;
  MemberId from;         // suspect, gone, down, dead: the accuser
  IdentityPtr identity;  // alive
  FactPtr fact;          // fact
  std::string reason;    // left, down: "restarting", "operator", ...; short
};

// One member, as state sync carries it.
struct Row {
  MemberState state = MemberState::alive;
  std::uint64_t incarnation = 0;
  IdentityPtr identity;
  std::vector<FactPtr> facts;  // in order of key; those that the sender has
  std::uint64_t gone_ms = 0;   // down, dead, left: how long the sender has had it in that state
};
// The version of a row, for comparing two tables cheaply.
struct RowSummary {
  MemberId id;
  std::uint64_t incarnation = 0;
  MemberState state = MemberState::alive;
  std::uint64_t facts_hash = 0;  // over (key, version)
};

// ---- bodies
struct Join {  // only this message is accepted on a link that is authenticated by the cluster key alone
  std::string cluster_name;
  Row self;
};
struct JoinReply {
  std::string refused;  // "": admitted; otherwise why not, for people
  MemberId cluster_id;
  std::uint64_t accused = 0;  // the highest incarnation known of the joiner, which must start above it
  std::string observed_ip;    // the joiner's address as seen from here
  std::vector<Row> rows;      // the whole table if it fits (kRowsPerMessage), else its first part; sync brings the rest
};
struct Ping {
  std::uint64_t sequence = 0;
  MemberId target;              // a ping for another node is refused
  std::int64_t sent = 0;        // returned in the pong, without meaning for the target; 0: not wanted
  std::vector<Rumour> rumours;  // first the suspicion of the target, if there is one
  bool out_of_turn = false;     // does not predict the time of the next ping
};
struct Pong {
  std::uint64_t sequence = 0;
  MemberId target;                // the probed node, if a helper relays its pong; none: the sender
  std::uint64_t incarnation = 0;  // of the target
  std::uint64_t boot_hash = 0;    // of the target's boot id and life
  std::int64_t sent = 0;          // echoed
  std::string observed_ip;        // the asker's address as seen from the target
  std::vector<Rumour> rumours;
};
struct PingRequest {  // asks a helper to probe the target
  std::uint64_t sequence = 0;
  IdentityPtr target;
  std::uint64_t incarnation = 0;
  std::vector<Rumour> rumours;
};
struct Nack {  // from a helper: no answer from the target at 80 % of the deadline
  std::uint64_t sequence = 0;
};
struct ProbeNow {  // confirm on demand: the sender suspects the subject; probe it now
  IdentityPtr subject;
  std::uint64_t incarnation = 0;
};
struct Gossip {
  std::vector<Rumour> rumours;
};
// State sync: roots, then buckets that differ, then rows that differ. Bucket of a member: top bits of its hash.
struct SyncRoot {
  std::uint64_t root = 0;              // of all buckets
  std::vector<std::uint64_t> buckets;  // empty: root only
  bool reply = false;
};
struct SyncSummaries {  // of the buckets that differ
  std::vector<std::uint16_t> buckets;
  std::vector<RowSummary> rows;
  bool reply = false;
};
struct SyncRows {
  std::vector<Row> rows;         // rows of the sender that the receiver lacks or has older
  std::vector<MemberId> wanted;  // rows of the receiver that the sender lacks or has older
};

using GossipBody = std::variant<Join, JoinReply, Ping, Pong, PingRequest, Nack, ProbeNow, Gossip, SyncRoot, SyncSummaries, SyncRows>;

enum class Lane : std::uint8_t { gossip, bulk };
// Join, JoinReply and Sync* travel on the bulk lane.
Lane lane_of(const GossipBody& body);
std::optional<Lane> lane_of(std::uint16_t type);  // of a header; unset: a type that this version does not know

// The body's type in the header (wire/peer.h): the variant's index + 1.
inline constexpr std::uint16_t kGossipTypes = std::variant_size_v<GossipBody>;
inline std::uint16_t type_of(const GossipBody& body) { return static_cast<std::uint16_t>(body.index() + 1); }

// Encodes the body. Values above a limit are written as they are and refused by the reader, so fill messages by encoded_size().
std::string encode_gossip(const GossipBody& body);
// ErrorCode::limit: longer than its lane allows; damaged: anything else. A decoded body keeps the limits above, has
// the identities and facts that its kinds need (never null), and a rumour's subject is that of its identity.
Result<GossipBody> decode_gossip(std::uint16_t type, std::string_view bytes);
// Exact, without encoding: the bytes that the rumour or row adds to a message (without its list's own header of at
// most 2 bytes).
std::size_t encoded_size(const Rumour& rumour);
std::size_t encoded_size(const Row& row);
std::size_t encoded_size(const GossipBody& body);  // of the body frame

}  // namespace dtrain::wire
