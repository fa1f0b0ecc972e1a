// Every limit of the system that more than one file needs, with its unit and what happens at it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrain::limits {

// Job file.
inline constexpr std::size_t kJobFileBytes = 1 << 20;    // larger: refused before parsing
inline constexpr std::size_t kYamlNodes = 100'000;       // scalars + sequences + mappings, aliases expanded: refused
inline constexpr std::size_t kYamlDepth = 32;            // deeper: refused
inline constexpr std::uint32_t kTasksPerJob = 10'000;    // more: refused
inline constexpr std::uint32_t kRanksPerTask = 256;      // processes that dtrain starts in one task; more: refused
inline constexpr std::uint32_t kOverridesPerRole = 256;  // more: refused
inline constexpr std::uint32_t kRetryExitCodes = 64;     // entries of a role's list; more: refused
inline constexpr std::uint32_t kWarmModules = 64;        // that a role names for its standbys; more: refused
inline constexpr std::size_t kModuleNameBytes = 200;
inline constexpr std::uint32_t kRolesPerJob = 64;  // more: refused
inline constexpr std::size_t kNameBytes = 63;      // job and node names
inline constexpr std::size_t kRoleNameBytes = 15;
inline constexpr std::size_t kArgumentBytes = 128 << 10;  // one argv or env string after rendering (Linux: 128 KiB)
inline constexpr std::size_t kArgumentsTotalBytes = 1 << 20;

// Control socket.
inline constexpr std::size_t kControlFrameBytes = 4 << 20;  // a longer announced length closes the connection
inline constexpr std::size_t kControlConnections = 512;     // further ones are accepted, answered with an error and closed
// of kControlConnections, those of one user; root and the agent's own user have no such limit
inline constexpr std::size_t kControlConnectionsOfUser = 128;
// of kControlConnections, those of the tasks of one user, root too
inline constexpr std::size_t kControlConnectionsOfTasks = 128;
// of kControlConnections, those kept for root and the agent's own user, so that nobody locks them out
inline constexpr std::size_t kControlConnectionsOfRoot = 32;
inline constexpr std::size_t kControlOutputBytes = 8 << 20;  // unsent bytes of one connection; beyond, it is closed
// of jobs, events or task specs in one answer; a longer answer is split into pages or refused
inline constexpr std::size_t kAnswerPageBytes = 2 << 20;
inline constexpr std::size_t kBlobChunkBytes = 1 << 20;     // one PutBlob message
inline constexpr std::uint64_t kPackageBytes = 4ull << 30;  // one package; larger: refused

// Ledger.
inline constexpr std::size_t kLedgerEntryBytes = 2 << 20;  // a larger proposal is refused
inline constexpr std::size_t kPendingProposals = 4096;     // unanswered requests; further ones are refused as overloaded
inline constexpr std::size_t kKeptEvents = 10'000;         // the oldest are dropped; numbers continue
inline constexpr std::size_t kActiveJobs = 10'000;         // a further submit is refused
inline constexpr std::size_t kFinishedJobs = 10'000;       // the oldest finished job is deleted when another finishes
// Job files in the ledger, those of ended jobs included. A submit that would exceed this removes ended jobs of the
// same user, the oldest first, and is refused if that is not enough. All job files are in every snapshot, which may
// have 256 MiB, twice.
inline constexpr std::size_t kSpecBytes = 96 << 20;
inline constexpr std::size_t kSpecBytesOfUser = 64 << 20;  // root's, too
inline constexpr std::size_t kReasonBytes = 1024;          // of a reason that the ledger keeps; the rest is cut off
inline constexpr std::size_t kDetailBytes = 1024;          // of one detail of an event; the rest is cut off
inline constexpr std::size_t kCheckpointsPerJob = 128;     // records kept; the oldest are forgotten (files stay)

inline constexpr std::size_t kCheckpointPlaces = 8;  // hosts noted for one checkpoint; further ones are not
inline constexpr std::size_t kShareHosts = 128;      // the same for a checkpoint of which each host has a share
// Of a job's checkpoints in shares, those of which the ledger knows what each host has: of older ones only the hosts.
inline constexpr std::size_t kSharedNoted = 4;
inline constexpr std::size_t kRestorePoints = 64;  // of one job; the oldest are forgotten
// hosts remembered as having run a job; those of the oldest generations are forgotten
inline constexpr std::size_t kHostsOfJob = 64;

// Tasks.
inline constexpr std::size_t kStatusTextBytes = 256;      // of a STATUS=; the rest is cut off
inline constexpr std::size_t kStderrTailBytes = 2048;     // kept with an exit
inline constexpr std::size_t kNotifyMessageBytes = 4096;  // a longer datagram is dropped
inline constexpr std::size_t kStreams = 256;              // open log/exec/watch streams per agent

}  // namespace dtrain::limits
