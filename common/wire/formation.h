// What founders send each other until they have formed a cluster (common/cluster/formation.h). There is one message:
// a report of what the sender has on its disk, sent as question and as answer.
//
// encode_formation()/decode_formation() write an append-only array: a shorter one leaves defaults, a longer one is
// cut. Limits are checked before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/member_id.h"
#include "common/base/result.h"

namespace dtrain::wire {

inline constexpr std::uint16_t kFormationType = 128;  // types 128 to 131 are formation's
inline constexpr std::size_t kMostFounders = 16;      // of one cluster; all of them, and further nodes, may have a copy of the log
inline constexpr std::size_t kFoundersBytes = 4096;   // their names together
inline constexpr std::size_t kMostWithdrawn = 16;     // foundings that one founder has given up
inline constexpr std::size_t kFormationBytes = 8192;  // larger: dropped unread

// A founder: the seat of its name among all names in ascending order, and its id.
struct Founder {
  std::uint16_t seat = 0;  // from 0
  MemberId id;
  auto operator<=>(const Founder&) const = default;
  template <class V>
  void fields(V& v) {
    v("seat", seat);
    v("high", id.high);
    v("low", id.low);
  }
};

// A cluster that is to be formed.
struct Founding {
  MemberId cluster;  // none: no founding
  MemberId proposer;
  std::vector<Founder> members;  // by seat
  bool none() const { return cluster.none(); }
  bool has(const MemberId& id) const;
  bool operator==(const Founding&) const = default;
  template <class V>
  void fields(V& v) {
    v("high", cluster.high);
    v("low", cluster.low);
    v("proposer_high", proposer.high);
    v("proposer_low", proposer.low);
    v("members", members);
  }
};
const char* defect(Founding& founding);  // what is wrong with a decoded founding; nullptr: nothing

struct FormationReport {
  std::string founders;                // the founders' names, ascending, joined by commas; the same on all
  std::uint16_t seat = 0;              // the sender's
  bool asks = false;                   // the sender wants an answer
  std::uint64_t round = 0;             // drawn by the sender, to be echoed
  std::uint64_t echo = 0;              // round of the addressee's question that this answers; 0: none is known
  Founding promise;                    // the one on the sender's disk
  MemberId cluster;                    // the cluster that the sender belongs to: that of its promise, begun, or another; none: none
  bool established = false;            // that cluster's log has committed entries
  bool doubts = false;                 // about its promise: the sender follows no member into it that has not answered since
  std::vector<std::uint16_t> without;  // form without these seats, as an operator told the sender
  std::vector<MemberId> withdrawn;     // clusters that the sender once promised and will never take part in
  bool operator==(const FormationReport&) const = default;
};

std::string encode_formation(const FormationReport& report);
Result<FormationReport> decode_formation(std::string_view bytes);
std::size_t encoded_size(const FormationReport& report);  // exact, without encoding

}  // namespace dtrain::wire
