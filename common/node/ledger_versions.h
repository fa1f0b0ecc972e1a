// Which versions of the ledger the programs of this cluster know (cluster/versions.h). The coordinator raises the
// ledger's version once all nodes with a copy know the next version. A host whose own program is too old reports so
// and takes no new tasks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/node/context.h"
#include "common/node/part.h"

namespace dtrain::node {

inline constexpr Duration kVersionPause = 5s;  // between two looks at the members' facts

class LedgerVersions final : public Part {
 public:
  explicit LedgerVersions(Context& context) : Part(Runs::with_log), c_(context) {}

  void members_changed() override { touch(); }
  void log_advanced() override;
  Instant deadline() const override { return next_; }
  // To be called when the members' facts may have changed.
  void touch() { touched_ = true; }
  // Why this host takes no new tasks; "": its program is new enough.
  std::string unfit() const override;
  // Succeeds if commands that need this version can be proposed now; the error's text begins with `could_not`.
  Status may_propose(std::uint32_t needs, const std::string& could_not) const;
  // The version that the ledger has, or is about to have.
  std::uint32_t coming() const;

 private:
  std::uint32_t known_to_all() const;

  Context& c_;
  Instant next_{};
  bool touched_ = true;
  std::uint32_t seen_ = cluster::kFirstVersion;    // the highest version that any member's copy has
  std::uint32_t raised_ = cluster::kFirstVersion;  // the version that this coordinator proposed
  std::uint64_t epoch_ = 0;                        // the epoch in which it did
};

}  // namespace dtrain::node
