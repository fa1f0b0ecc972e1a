#include "common/node/ledger_versions.h"

#include <algorithm>
#include <vector>

#include "common/node/cluster_members.h"

namespace dtrain::node {
namespace {

constexpr std::size_t kNamed = 5;  // hosts named in a message

std::uint32_t known_by(const gossip::MemberView* member) { return (member == nullptr ? CouncilFact{} : council_fact_of(*member)).knows; }

}  // namespace

std::uint32_t LedgerVersions::known_to_all() const {
  std::uint32_t version = c_.ledger.knows;
  if (c_.options.broken_rule == "version-of-all") return version;
  each_copy(c_, [&](const std::string&, const gossip::MemberView* member) { version = std::min(version, known_by(member)); });
  return version;
}

std::uint32_t LedgerVersions::coming() const {
  const std::uint32_t version = c_.ledger.state().version;
  return c_.serving && epoch_ == c_.replicated->epoch() ? std::max(version, raised_) : version;
}

void LedgerVersions::log_advanced() {
  if (!c_.replicated || c_.storage_failed) return;
  if (next_ > c_.now.boot && !touched_) return;
  touched_ = false;
  next_ = kNever;
  seen_ = c_.ledger.state().version;
  c_.members->table().each([&](const gossip::MemberView& m) {
    if (m.state != wire::MemberState::left) seen_ = std::max(seen_, council_fact_of(m).version);
  });
  if (!c_.serving || c_.ledger.knows <= coming()) return;  // a node that comes to coordinate looks then
  const std::uint32_t to = known_to_all();
  if (to > coming() && c_.propose(cluster::CommandType::raise_version, cluster::RaiseVersion{to}) != 0) {
    raised_ = to;
    epoch_ = c_.replicated->epoch();
  }
  if (c_.ledger.knows > coming()) next_ = c_.now.boot + kVersionPause;
}

std::string LedgerVersions::unfit() const {
  const auto& behind = c_.ledger.behind();
  const std::uint32_t needs = behind ? behind->needs : seen_;
  if (behind && needs == 0) return "this host's copy of the ledger stands still: " + behind->cause;
  if (needs <= c_.ledger.knows) return "";
  return "this host's dtrain knows version " + std::to_string(c_.ledger.knows) + " of the ledger, which has version " +
         std::to_string(needs);
}

Status LedgerVersions::may_propose(std::uint32_t needs, const std::string& could_not) const {
  if (needs <= c_.ledger.state().version) return {};
  std::string names;
  std::size_t behind = 0;
  const auto note = [&](const std::string& name, std::uint32_t knows) {
    if (knows < needs && ++behind <= kNamed) names += (names.empty() ? "" : ", ") + name;
  };
  note(c_.facts.name, c_.ledger.knows);
  each_copy(c_, [&](const std::string& name, const gossip::MemberView* member) { note(name, known_by(member)); });
  if (behind > kNamed) names += " and " + std::to_string(behind - kNamed) + " more";
  const std::string cause = could_not + ": it needs version " + std::to_string(needs) + " of the ledger, which has version " +
                            std::to_string(c_.ledger.state().version);
  if (behind == 0) return fail(ErrorCode::refused, cause, "the coordinator raises it within a few seconds: try again");
  return fail(ErrorCode::refused, cause + ", as these hosts run an older dtrain: " + names,
              "upgrade dtrain there (docs/upgrading.md), then try again");
}

}  // namespace dtrain::node
