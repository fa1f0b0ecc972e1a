// The unit of the replicated log and of its storage.
#pragma once

#include <cstdint>
#include <string>

namespace dtrain::raft {

struct LogEntry {
  std::uint64_t index = 0;  // from 1, without gaps
  std::uint64_t term = 0;
  std::string payload;  // an encoded cluster::Command
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("term", term);
    v("payload", payload);
  }
};

struct StoredSnapshot {
  std::uint64_t index = 0;  // the last entry it contains
  std::uint64_t term = 0;
  std::string payload;  // an encoded cluster::LedgerState
  template <class V>
  void fields(V& v) {
    v("index", index);
    v("term", term);
    v("payload", payload);
  }
};

}  // namespace dtrain::raft
