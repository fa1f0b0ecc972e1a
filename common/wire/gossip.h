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
inline constexpr std::size_t kFactBytes = 16 << 10;           // one fact's value
inline constexpr std::size_t kWordBytes = 64;                 // boot id, key fingerprint; longer: refused
inline constexpr std::size_t kProseBytes = 64;                // text for people; longer: cut when written, refused when read
inline constexpr std::size_t kRefusedBytes = 256;             // the same of JoinReply::refused
inline constexpr std::size_t kIpBytes = 45;
// Counters that only grow, and that everybody would follow to the end: no honest one comes near, and one below the end can
// always be counted up without wrapping to 0.
inline constexpr std::uint64_t kMostIncarnation = (std::uint64_t{1} << 62) - 1;  // of rumours, rows, JoinReply::accused
inline constexpr std::uint64_t kMostFactVersion = std::uint64_t{1} << 62;        // and at least 1: 0 is "not known"

struct Endpoint {
  std::string ip;          // numeric; IPv6 without brackets
  std::uint16_t port = 0;  // of the gossip lane; bulk is one above
  auto operator<=>(const Endpoint&) const = default;
  std::string text() const;  // "10.0.0.11:7400", "[fd00::1]:7400"
};

// Which agent run, where. A changed identity needs a higher incarnation.
struct Identity {
  MemberId id;
  std::string name;
  Endpoint address;              // advertised
  std::string boot_id;           // the kernel's
  std::uint64_t life = 0;        // of the agent, counted on its data directory
  std::uint16_t format_min = 1, format_max = 1;  // wire formats it speaks
  std::string key_print;         // fingerprint of the cluster key that it serves with; "" without CURVE
  bool operator==(const Identity&) const = default;
};
using IdentityPtr = std::shared_ptr<const Identity>;

// What a node says of itself, one key at a time. Only the subject raises a version; the higher version wins. Versions
// begin anew at (life << 32) with each life.
enum class FactKey : std::uint8_t {
  resources,  // encoded HostFacts: GPUs, CPUs, memory, labels (common/node/host_facts.h)
  free,       // encoded FreeFacts: what is not taken of them
  running,    // hash over the (job, task, generation, attempt) that it runs
  council,    // "coordinator", "voter", "learner", "member", and the epoch that it knows
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

// In the order in which they beat each other at one incarnation (left beats all).
enum class MemberState : std::uint8_t { alive, suspect, down, dead, left };
constexpr MemberState enum_last(MemberState) { return MemberState::left; }
const char* to_string(MemberState state);  // "alive", ...
// Alive as far as is known: to be probed, told and counted.
constexpr bool in_service(MemberState state) { return state == MemberState::alive || state == MemberState::suspect; }

enum class RumourKind : std::uint8_t {
  alive,    // identity, incarnation
  suspect,  // silence: from accuses subject's incarnation
  gone,     // process gone: from saw the connection close and a new one refused
  down,     // two gone, decided: agent down, host up
  dead,     // decided after silence
  left,     // the subject said so itself, or an operator for it
  fact,     // fact of subject
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

// One member as state sync carries it.
struct Row {
  MemberState state = MemberState::alive;
  std::uint64_t incarnation = 0;
  IdentityPtr identity;
  std::vector<FactPtr> facts;  // in order of key; those the sender has
  std::uint64_t gone_ms = 0;   // down, dead, left: for how long the sender has held that
};
// What a row's version is, for comparing two tables cheaply.
struct RowSummary {
  MemberId id;
  std::uint64_t incarnation = 0;
  MemberState state = MemberState::alive;
  std::uint64_t facts_hash = 0;  // over (key, version)
};

// ---- bodies
struct Join {  // on a link authenticated by the cluster key alone; nothing else is accepted there
  std::string cluster_name;
  Row self;
};
struct JoinReply {
  std::string refused;           // "": welcome; else why not, for people
  MemberId cluster_id;
  std::uint64_t accused = 0;     // the highest incarnation known of the joiner: it starts above
  std::string observed_ip;       // what the joiner looks like from here
  std::vector<Row> rows;         // the whole table where it fits (kRowsPerMessage), else the first part: sync brings the rest
};
struct Ping {
  std::uint64_t sequence = 0;
  MemberId target;                       // a ping for another node is refused
  std::int64_t sent = 0;                 // comes back in the pong, means nothing to others; 0: not wanted
  std::vector<Rumour> rumours;           // the suspicion of the target first, if there is one
  bool out_of_turn = false;              // says nothing of when the next one comes
};
struct Pong {
  std::uint64_t sequence = 0;
  MemberId target;                       // who was probed; none: the sender. Given when a helper relays
  std::uint64_t incarnation = 0;         // of the target
  std::uint64_t boot_hash = 0;           // of the target's boot id and life
  std::int64_t sent = 0;                 // echoed
  std::string observed_ip;               // what the asker looks like from the target
  std::vector<Rumour> rumours;
};
struct PingRequest {                     // probe target for me
  std::uint64_t sequence = 0;
  IdentityPtr target;
  std::uint64_t incarnation = 0;
  std::vector<Rumour> rumours;
};
struct Nack {                            // helper: no answer from the target at 80 % of the deadline
  std::uint64_t sequence = 0;
};
struct ProbeNow {                        // confirm on demand: the sender suspects subject; probe it yourself now
  IdentityPtr subject;
  std::uint64_t incarnation = 0;
};
struct Gossip {
  std::vector<Rumour> rumours;
};
// State sync: roots, then buckets that differ, then rows that differ. Bucket of a member: top bits of its hash.
struct SyncRoot {
  std::uint64_t root = 0;                // of all buckets
  std::vector<std::uint64_t> buckets;    // empty: root only
  bool reply = false;
};
struct SyncSummaries {                   // of the buckets that differ
  std::vector<std::uint16_t> buckets;
  std::vector<RowSummary> rows;
  bool reply = false;
};
struct SyncRows {
  std::vector<Row> rows;                 // the sender's, which the receiver lacks or has older
  std::vector<MemberId> wanted;          // the receiver's, which the sender lacks or has older
};

using GossipBody = std::variant<Join, JoinReply, Ping, Pong, PingRequest, Nack, ProbeNow, Gossip, SyncRoot,
                                SyncSummaries, SyncRows>;

enum class Lane : std::uint8_t { gossip, bulk };
// Join, JoinReply and Sync* travel on the bulk lane.
Lane lane_of(const GossipBody& body);
std::optional<Lane> lane_of(std::uint16_t type);  // of a header; unset: a type that this version does not know

// The body's type in the header (wire/peer.h): the variant's index + 1.
inline constexpr std::uint16_t kGossipTypes = std::variant_size_v<GossipBody>;
inline std::uint16_t type_of(const GossipBody& body) { return static_cast<std::uint16_t>(body.index() + 1); }

// The body's bytes. Written as given: what exceeds a limit above is refused by its reader, so fill messages by encoded_size().
std::string encode_gossip(const GossipBody& body);
// limit: longer than its lane allows. damaged: anything else. Whatever it answers holds the limits above; identities and facts
// that a kind needs are there (never null), and a rumour's subject is its identity's.
Result<GossipBody> decode_gossip(std::uint16_t type, std::string_view bytes);
// Exact, without encoding. Bytes that the rumour or row adds to a message (its list's own head aside: at most 2 bytes more).
std::size_t encoded_size(const Rumour& rumour);
std::size_t encoded_size(const Row& row);
std::size_t encoded_size(const GossipBody& body);  // of the body frame

}  // namespace dtrain::wire
