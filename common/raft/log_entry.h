// The unit of the replicated log, and the form of a log on the disk.
//
// Structs here only ever gain fields with defaults, so that records which an older version stored still decode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/member_id.h"
#include "common/base/time.h"
#include "common/wire/raft.h"

namespace dtrain::raft {

using wire::Configuration;
using wire::EntryKind;
using wire::History;
using wire::Life;
using wire::LogEntry;

struct StoredSnapshot {
  std::uint64_t index = 0;  // the last entry it contains
  std::uint64_t term = 0;
  std::string payload;          // an encoded cluster::LedgerState
  std::string configuration{};  // wire::encode_configuration: in force at `index`
  Duration elapsed{};           // of the entry at `index`
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("term", term);
    v("payload", payload);
    v("configuration", configuration);
    v("elapsed", elapsed);
  }
};

// The highest life that this member has seen of another member.
struct SeenLife {
  std::uint64_t high = 0, low = 0;  // its id
  Life life;
  MemberId id() const { return {high, low}; }
  bool operator==(const SeenLife&) const = default;
  template <class V>
  void fields(V& v) {
    v("high", high);
    v("low", low);
    v("life", life);
  }
};

// What this member has promised to others and must never forget.
struct HardState {
  History history;
  std::uint64_t term = 0;
  std::uint64_t voted_high = 0, voted_low = 0;  // who has the vote of `term`; 0: nobody
  std::vector<SeenLife> lives;                  // ascending by id, without senders that were no members
  bool stale = false;  // another member showed that this disk is an old copy: this member votes no more, in any later life
  MemberId voted_for() const { return {voted_high, voted_low}; }
  void vote_for(const MemberId& id) { voted_high = id.high, voted_low = id.low; }
  bool operator==(const HardState&) const = default;
  template <class V>
  void fields(V& v) {
    v("history", history);
    v("term", term);
    v("voted_high", voted_high);
    v("voted_low", voted_low);
    v("lives", lives);
    v("stale", stale);
  }
};

// A log as it is on a disk.
struct Stored {
  HardState hard;
  std::optional<StoredSnapshot> snapshot;
  std::vector<LogEntry> log;  // entries after the snapshot, in order, without gaps
};

}  // namespace dtrain::raft
