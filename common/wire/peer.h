// The envelope of everything that one agent sends another: frames [header][body]. The header is a fixed msgpack array
// that is checked completely before the body is looked at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/member_id.h"
#include "common/base/result.h"

namespace dtrain::wire {

inline constexpr std::uint32_t kPeerMagic = 0x6474726e;  // "dtrn"
inline constexpr std::uint16_t kPeerFormat = 1;          // the highest that this version speaks
inline constexpr std::size_t kHeaderBytes = 128;         // longer: dropped unread

struct PeerHeader {
  std::uint16_t format = kPeerFormat;
  std::uint16_t type = 0;  // of the body; 1 to 63: gossip; 64 to 127: the log (wire/log_message.h); 128:
                           // wire/formation.h; 132 to 134: wire/relay.h
  MemberId cluster;        // none: the sender belongs to no cluster yet (Join and formation only)
  MemberId sender;
  std::uint64_t incarnation = 0;  // of the sender
  std::uint64_t epoch = 0;        // the highest that the sender knows
  std::uint64_t correlation = 0;  // links an answer to its question; 0: none
};

std::string encode_header(const PeerHeader& header);
std::size_t encoded_size(const PeerHeader& header);  // exact, without encoding

// Why a message was dropped before its body was parsed; counted, and logged once a minute for each peer.
enum class Drop : std::uint8_t {
  malformed,
  too_large,
  unknown_format,
  other_cluster,
  not_the_key_holder,
  self,
  join_link,
  unknown_type,
  bad_body,
};
inline constexpr std::size_t kDrops = 9;
constexpr Drop enum_last(Drop) { return Drop::bad_body; }
const char* to_string(Drop drop);  // "other-cluster"

// The identity that the link authenticated.
struct LinkAuth {
  bool curve = false;        // false: plain, loopback only; the sender is believed
  bool cluster_key = false;  // authenticated only by the cluster key: valid for Join, its answer, and founders' reports
  MemberId node;             // curve and not cluster_key: the owner of the key
};

struct CheckedHeader {
  PeerHeader header;
  bool ok = false;
  Drop drop = Drop::malformed;
};
// `cluster`: this node's, or none if it belongs to none (then only JoinReply passes); founders' reports always pass. Never throws.
CheckedHeader check_header(std::string_view bytes, std::size_t body_bytes, const MemberId& self, const MemberId& cluster,
                           const LinkAuth& auth);

}  // namespace dtrain::wire
