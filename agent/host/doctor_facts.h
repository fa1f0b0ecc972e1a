// Looks at this host for `dtrainctl doctor`: reads /proc, /sys, disks, names, and tries connections. Decides nothing
// (common/node/doctor.h does). Waits for disks, name servers and peers, so never on the loop's thread (examiner.h).
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "common/node/examination.h"

namespace dtrain::host {

inline constexpr Duration kLookupsWithin = 5s;       // all names together; a name without an answer by then counts as unanswered
inline constexpr Duration kContactWithin = 2s;       // one connection
inline constexpr Duration kContactsWithin = 6s;      // all of them together; the rest are not tried
inline constexpr std::size_t kContactsAtOnce = 128;  // connections under way
inline constexpr std::size_t kListenersMost = 1000;  // on task ports; further ones are left out

struct DoctorOptions {
  node::ExamTerms terms;
  std::vector<node::ExamPeer> peers;
  std::function<bool(pid_t)> is_task;  // whether a process belongs to a task of this host; unset: none does
  std::string root;                    // in front of /proc, /sys, /dev and /usr, for tests
};

node::Examination examine(const DoctorOptions& options);

// ---- parts of the examination
//
// The kernel's range, and the ports reserved in it; empty if the kernel does not say.
node::PortSpan local_port_range(const std::string& root = "");
std::vector<node::PortSpan> reserved_ports(const std::string& root = "");
// Connects to both ports of each peer, and closes again at once.
std::vector<node::Contact> try_contacts(const std::vector<node::ExamPeer>& peers, Duration one = kContactWithin,
                                        Duration all = kContactsWithin);
// The limits that tasks are to get, and those that this process can give them.
std::vector<node::TaskLimit> task_limits(const node::ExamTerms& terms);
// Asks the resolver for each name, within that time.
void look_up(std::vector<node::Lookup>& lookups, Duration within);
// Of the GPUs of a maker: vendor is "0x10de" or "0x1002".
node::Driver gpu_driver(const std::string& vendor, const std::string& root = "");
node::Disk look_at_disk(const std::string& what, const std::string& path);

}  // namespace dtrain::host
