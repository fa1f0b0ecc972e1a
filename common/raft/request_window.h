// Recognises requests that were applied already, so that a repeated request is applied once.
//
// A client that got no answer sends its request again, perhaps to another node. Every request carries an id and the
// log index at which it was minted (a commit index that the client's node had seen). Ids are kept for kRequestWindow
// entries; a request minted longer ago is refused, because nobody knows any more whether it was applied. The window
// is part of the replicated state: every member judges the same requests in the same order with the same verdicts, so
// it is encoded with the ledger's snapshot.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "common/base/member_id.h"
#include "common/base/result.h"
#include "common/raft/rules.h"

namespace dtrain::raft {

inline constexpr std::uint64_t kRequestWindow = 100'000;  // entries

struct RequestId {
  MemberId id;               // random, one for each request; the same when the request is repeated
  std::uint64_t minted = 0;  // a committed index that its first sender knew
};

class RequestWindow {
 public:
  enum class Verdict : std::uint8_t {
    fresh,     // apply it; it is remembered from now on
    repeated,  // it was applied by the entry `Judged::index`
    too_old,   // not to be applied: minted more than a window ago
    unminted,  // not to be applied: minted at an index that does not exist yet, or without an id
  };
  struct Judged {
    Verdict verdict{};
    std::uint64_t index = 0;  // of the entry that applied it
  };

  explicit RequestWindow(Rules rules = Rules(), std::uint64_t window = kRequestWindow) : rules_(rules), window_(window) {}

  // Judges the request in the entry `index`. Indices ascend from call to call.
  Judged judge(const RequestId& request, std::uint64_t index);
  std::size_t size() const { return order_.size(); }

  std::string encode() const;
  // Replaces the content; malformed bytes leave it as it was.
  Status decode(std::string_view bytes);

 private:
  struct Applied {
    std::uint64_t index = 0;
    MemberId id;
  };
  void forget_before(std::uint64_t index);

  Rules rules_;
  std::uint64_t window_;
  std::map<MemberId, std::uint64_t> applied_;
  std::deque<Applied> order_;  // ascending by index
};

}  // namespace dtrain::raft
