// How a shim prepares for an assignment, or leaves one and stays for another.
#include <sys/epoll.h>

#include "agent/dtrain-shim/shim.h"

namespace dtrain::shim {

bool Shim::open_standbys() {
  if ((launch_.header.flags & kStandby) == 0) return true;
  if (!standbys_.start(launch_, tree_.cgroup_fd(), record_.shim_pid)) return false;
  for (uint32_t i = 0; i < standbys_.count(); ++i)
    if (!watch(standbys_.socket(i), kStandbyAnswer + i, EPOLLIN)) return false;
  return true;
}

void Shim::note_cold() { memcpy(record_.cold, standbys_.cold(), strlen(standbys_.cold()) + 1); }

// The agent ends a shim with one that is not ready.
void Shim::standby_answered(uint32_t index) {
  if (standbys_.answered(index)) {
    standbys_.note_ready();
    if (standbys_.all_ready()) record_.flags |= kStandsBy;
  } else {
    record_.flags &= static_cast<uint16_t>(~kStandsBy);
    note_cold();
    epoll_ctl(epoll_, EPOLL_CTL_DEL, standbys_.socket(index), nullptr);
  }
  changed();
}

void Shim::remove_sockets() {
  unlink(kSocketFile);
  unlink(kNotifyFile);
}

// True if nothing would follow the shim into the next assignment: no v1 memory cgroup, no real-time priority of a lease,
// no extra memory for a long launch file. A service belongs to one assignment, and a stopping host gets no more. What only prepared
// for an assignment has the cgroups and the service of the one that will follow.
bool Shim::may_stay() const {
  if (!stay_asked_ || lease_ || host_stops_ns_ != 0 || link_.fd() < 0) return false;
  if ((launch_.header.flags & kStandby) != 0) return standbys_.all_ready();
  return (launch_.header.flags & kUnit) == 0 && launch_.memory_cgroup[0] == '\0' && launch_.is_short();
}

}  // namespace dtrain::shim
