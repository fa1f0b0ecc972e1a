// What founders say to each other until they have formed a cluster (common/cluster/formation.h). There is one
// message: a report of what the sender has on its disk, sent as question and as answer.
//
// encode_formation()/decode_formation() write an append-only array: a shorter one leaves defaults, a longer
// one is cut. Limits are checked before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/member_id.h"
#include "common/base/result.h"

namespace dtrain::wire {

inline constexpr std::uint16_t kFormationType = 128;  // types 128 to 131 are formation's
inline constexpr std::size_t kMostFounders = 16;      // as many and more may have a copy of the log
inline constexpr std::size_t kFoundersBytes = 4096;   // of their names in all
inline constexpr std::size_t kMostWithdrawn = 16;     // attempts given up by one founder
inline constexpr std::size_t kFormationBytes = 8192;  // larger: dropped unread

// A founder's place: which of the names, in ascending order, and who is there.
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

// A cluster that shall come to be.
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
const char* defect(Founding& founding);  // what is wrong with one that was read; nullptr: nothing

struct FormationReport {
  std::string founders;      // their names, ascending, with commas: alike on all
  std::uint16_t seat = 0;    // the sender's
  bool asks = false;         // for an answer
  std::uint64_t round = 0;   // the sender's, drawn: to be echoed
  std::uint64_t echo = 0;    // of the addressee, whose question this answers; 0: none is known
  Founding promise;          // that is on the sender's disk
  MemberId cluster;          // that the sender belongs to: its promise's, started, or another; none: none
  bool established = false;  // that cluster's log has committed entries
  bool doubts = false;       // the promise: follows nobody into it who did not answer since
  std::vector<std::uint16_t> without;  // an operator's word here: form without these seats
  std::vector<MemberId> withdrawn;     // clusters that the sender promised to once and never takes part in
  bool operator==(const FormationReport&) const = default;
};

std::string encode_formation(const FormationReport& report);
Result<FormationReport> decode_formation(std::string_view bytes);
std::size_t encoded_size(const FormationReport& report);  // exact, without encoding

}  // namespace dtrain::wire
