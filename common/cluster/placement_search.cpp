#include "common/cluster/placement_search.h"

#include <algorithm>

#include "common/cluster/placement.h"

namespace dtrain::cluster {
namespace {

class Search {
 public:
  Search(Attempt& attempt, const std::vector<Fit>& fits) : attempt_(attempt), fits_(fits) {
    for (HostNumber h = 0; h < attempt.now().size() && hosts_.size() <= kSearchHosts; ++h)
      for (std::size_t f = 0; f < fits.size(); ++f)
        if (attempt.slots(f, h) > 0) {
          hosts_.push_back(h);
          break;
        }
    for (std::size_t f = 0; f < fits.size(); ++f) order_.push_back(f);
    // Roles that need most come first, because they have the fewest places.
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return size(a) > size(b); });
  }

  bool run() { return hosts_.size() <= kSearchHosts && place(0, 0, 0); }

 private:
  std::array<std::uint64_t, 3> size(std::size_t f) const {
    const job::Resources& each = fits_[f].demand().role->resources;
    return {each.gpus, each.cpu_millis, each.memory_bytes};
  }

  // Places the task `task` of role order_[role] on hosts_[from] or a later host.
  bool place(std::size_t role, std::uint32_t task, std::size_t from) {
    if (role == order_.size()) return true;
    const std::size_t f = order_[role];
    if (task == fits_[f].demand().count()) return place(role + 1, 0, 0);
    for (std::size_t i = from; i < hosts_.size(); ++i) {
      if (++steps_ > kSearchSteps) return false;
      if (attempt_.slots(f, hosts_[i]) == 0 || like_an_earlier(i, from)) continue;
      const std::size_t before = attempt_.mark();
      attempt_.put_on(f, hosts_[i], 1);
      if (place(role, task + 1, i)) return true;
      attempt_.back_to(before);
    }
    return false;
  }

  // True if trying host i would repeat an earlier try: no role can tell the two hosts apart.
  bool like_an_earlier(std::size_t i, std::size_t from) const {
    for (std::size_t earlier = from; earlier < i; ++earlier)
      if (alike(hosts_[earlier], hosts_[i])) return true;
    return false;
  }
  bool alike(HostNumber a, HostNumber b) const {
    const Capacity& now = attempt_.now();
    if (now.room(a) != now.room(b) || now.free_ports(a) != now.free_ports(b)) return false;
    return std::all_of(fits_.begin(), fits_.end(), [&](const Fit& fit) {
      return !fit.spaced() && fit.exclusion(a) == fit.exclusion(b) && fit.gpus(now, a) == fit.gpus(now, b);
    });
  }

  Attempt& attempt_;
  const std::vector<Fit>& fits_;
  std::vector<HostNumber> hosts_;
  std::vector<std::size_t> order_;
  std::uint32_t steps_ = 0;
};

}  // namespace

bool search(Attempt& attempt, const std::vector<Fit>& fits) { return Search(attempt, fits).run(); }

}  // namespace dtrain::cluster
