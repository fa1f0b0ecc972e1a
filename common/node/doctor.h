// Finds what is wrong with a host and with its connections to the others, each with its cure (docs/doctor.md). Pure:
// judges what was seen.
//
// Levels: bad: something does not work or is about to stop; warn: something will not work in a case that may come, or
// works worse than it could; ok: a check that found nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/time.h"
#include "common/node/examination.h"
#include "common/wire/doctor.h"

namespace dtrain::node {

inline constexpr Duration kClockWarn = 1s, kClockBad = 1min;  // difference between the clocks of two hosts
inline constexpr std::uint32_t kDiskWarnTimes = 2;            // warn if less than this multiple of the required minimum is free
inline constexpr std::uint32_t kInodesPercent = 1;            // fewer free inodes than this are too few
// listeners on task ports that are named; further ones are counted
inline constexpr std::size_t kStrangersSaid = 8;

using Findings = std::vector<wire::Finding>;

// Checks the host alone, in the order of docs/doctor.md. Each check yields at least one finding: `ok` if nothing is wrong.
Findings examine_host(const Examination& seen);

// What the examining host knows of another member.
struct PeerReport {
  std::string name;
  wire::Endpoint address;
  wire::MemberState state{};
  std::string version;  // of its agent; "": not known yet
  std::optional<wire::DoctorReply> reply;
  // why there is no reply; the message holds the cause alone. Neither reply nor error: it was not asked
  std::optional<Error> error;
  Duration ahead{};  // how far its clock is ahead of the clock here, as `reply` shows,
  Duration doubt{};  // plus or minus this
};
// Checks connections in both directions, clocks, names and versions, and includes what is wrong with the members themselves.
Findings examine_peers(const Examination& seen, const std::string& version, const std::vector<PeerReport>& peers);
// What this host tells `asker` about how it sees it.
wire::PeerSight sight_of(const Examination& seen, const ExamPeer& asker);

// ---- single checks that an agent also makes at its start. nullopt or empty: all is well.
std::optional<wire::Finding> task_ports_overlap(const PortSpan& task_ports, const PortSpan& local, const std::vector<PortSpan>& reserved,
                                                const std::string& node);
Findings limits_too_low(const std::vector<TaskLimit>& limits, const std::string& node);
std::optional<wire::Finding> task_address_unknown(const std::string& address, const std::string& interface, const std::string& node);

}  // namespace dtrain::node
