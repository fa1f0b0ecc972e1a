// Describes what formation waits for.
#include "common/cluster/formation.h"

namespace dtrain::cluster::formation {

namespace {

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < names.size(); ++i) out += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return out;
}

}  // namespace

std::string Formation::status() const {
  if (mute_) return "formation stands still: the disk failed; repair it and restart the machine";
  if (established_) return "";
  if (!cluster_.none()) return "cluster " + cluster_.text().substr(0, 8) + " was formed; waits for a majority of its voters";
  if (!others_founders_.empty() && now_ - others_named_ <= options_.fresh)
    return "waits: another machine names the founders " + others_founders_ + ", this one " + founders_ +
           "; the cluster's name, `join` and `expect` must be alike on all of them";
  if (const auto join = cluster_to_join())
    return names_[join->seat] + " belongs to cluster " + join->cluster.text().substr(0, 8) + "; waits to be admitted there";
  std::vector<std::string> missing, promised_not;
  for (const Seat seat : wanted())
    if (!fresh(seat)) missing.push_back(names_[seat]);
  const Founding& founding = record_.promise;
  const std::string without =
      missing.size() * 2 < names_.size() ? "; `dtrainctl form --without` forms the cluster without who will not come" : "";
  if (!missing.empty())
    return "waits for " + listed(missing) + ", not reachable of " + std::to_string(names_.size()) + " founders" + without;
  if (record_.withdrawn.size() >= wire::kMostWithdrawn)
    return "gave up after " + std::to_string(wire::kMostWithdrawn) +
           " attempts; see that every founder has a name of its own, then give this machine an empty data "
           "directory";
  if (wanted().size() != names_.size() && !all_void())
    return "cannot form the cluster without the others: they may have begun it; bring one of them up";
  for (const Founder& founder : founding.members)
    if (founder.id != id_ && fresh(founder.seat) && peers_[founder.seat].report.promise != founding)
      promised_not.push_back(names_[founder.seat]);
  if (!promised_not.empty()) return "all founders are there; waits for the promise of " + listed(promised_not);
  return "all founders are there; waits for one of them to propose the cluster";
}

}  // namespace dtrain::cluster::formation
