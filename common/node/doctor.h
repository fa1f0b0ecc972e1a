// What is wrong with a host and with its way to the others, each with its cure (docs/doctor.md). Pure: judges what was seen.
//
// Levels: bad, something does not work or is about to stop; warn, something will not work in a case that may come, or works
// worse than it could; ok, a check that found nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/time.h"
#include "common/node/examination.h"
#include "common/wire/doctor.h"

namespace dtrain::node {

inline constexpr Duration kClockWarn = 1s, kClockBad = 1min;  // between the clocks of two hosts
inline constexpr std::uint32_t kDiskWarnTimes = 2;            // free space below so many times what must be free
inline constexpr std::uint32_t kInodesPercent = 1;            // fewer free ones are too few
inline constexpr std::size_t kStrangersSaid = 8;              // listeners on task ports that are named; of the rest the number

using Findings = std::vector<wire::Finding>;

// Of the host alone, in the order of docs/doctor.md. Each check is there at least once: as `ok` where it found nothing.
Findings examine_host(const Examination& seen);

// What another member is to the host that asks.
struct PeerReport {
  std::string name;
  wire::Endpoint address;
  wire::MemberState state{};
  std::string version;                     // of its agent; "": not heard of yet
  std::optional<wire::DoctorReply> reply;
  std::optional<Error> error;              // why there is none; the message is the cause alone. Neither: it was not asked
  Duration ahead{};                        // its clock before the one here, as `reply` shows it,
  Duration doubt{};                        // give or take
};
// How the host reaches the others and they it, their clocks, names and versions, and what is wrong with them themselves.
Findings examine_peers(const Examination& seen, const std::string& version, const std::vector<PeerReport>& peers);
// To be told to the one that asks.
wire::PeerSight sight_of(const Examination& seen, const ExamPeer& asker);

// ---- single checks that an agent makes at its start, too. Nothing: it is well.
std::optional<wire::Finding> task_ports_overlap(const PortSpan& task_ports, const PortSpan& local, const std::vector<PortSpan>& reserved,
                                                const std::string& node);
Findings limits_too_low(const std::vector<TaskLimit>& limits, const std::string& node);
std::optional<wire::Finding> task_address_unknown(const std::string& address, const std::string& interface, const std::string& node);

}  // namespace dtrain::node
