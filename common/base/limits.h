// Every limit of the system that more than one file needs, with its unit and what happens at it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrain::limits {

// Job file.
inline constexpr std::size_t kJobFileBytes = 1 << 20;       // larger: refused before parsing
inline constexpr std::size_t kYamlNodes = 100'000;          // scalars + sequences + mappings, aliases expanded: refused
inline constexpr std::size_t kYamlDepth = 32;               // deeper: refused
inline constexpr std::uint32_t kTasksPerJob = 10'000;       // more: refused
inline constexpr std::uint32_t kRolesPerJob = 64;           // more: refused
inline constexpr std::size_t kNameBytes = 63;               // job and node names
inline constexpr std::size_t kRoleNameBytes = 15;
inline constexpr std::size_t kArgumentBytes = 128 << 10;    // one argv or env string after rendering (Linux: 128 KiB)
inline constexpr std::size_t kArgumentsTotalBytes = 1 << 20;

// Control socket.
inline constexpr std::size_t kControlFrameBytes = 4 << 20;  // a longer announced length closes the connection
inline constexpr std::size_t kControlConnections = 512;     // further ones are accepted and closed with an error
inline constexpr std::size_t kControlConnectionsOfUser = 128;  // of those; root and the agent's own user have no such limit
inline constexpr std::size_t kControlConnectionsOfRoot = 32;   // of those, for these two alone: nobody locks them out
inline constexpr std::size_t kControlOutputBytes = 8 << 20; // unsent bytes of one connection; beyond: closed
inline constexpr std::size_t kAnswerPageBytes = 2 << 20;    // of jobs, events or task specs in one answer; the rest is asked for or refused
inline constexpr std::size_t kBlobChunkBytes = 1 << 20;     // one PutBlob message
inline constexpr std::uint64_t kPackageBytes = 4ull << 30;  // one package; larger: refused

// Ledger.
inline constexpr std::size_t kLedgerEntryBytes = 2 << 20;   // a proposal above is refused
inline constexpr std::size_t kPendingProposals = 4096;      // more unanswered requests: refused as overloaded
inline constexpr std::size_t kKeptEvents = 10'000;          // oldest dropped; seq goes on
inline constexpr std::size_t kActiveJobs = 10'000;          // a further submit is refused
inline constexpr std::size_t kFinishedJobs = 10'000;        // oldest finished one is deleted at the next
// Of job files as the ledger keeps them, ended jobs' included: at a submit ended ones of the same user go for it, the oldest first; where
// that is not enough it is refused. All of them are in every snapshot, which may have 256 MiB, twice.
inline constexpr std::size_t kSpecBytes = 96 << 20;
inline constexpr std::size_t kSpecBytesOfUser = 64 << 20;   // root's likewise
inline constexpr std::size_t kReasonBytes = 1024;           // of a reason that the ledger keeps; the rest is cut off
inline constexpr std::size_t kDetailBytes = 1024;           // of one detail of an event; likewise
inline constexpr std::size_t kCheckpointsPerJob = 128;      // records kept; the oldest are forgotten (files stay)

inline constexpr std::size_t kCheckpointPlaces = 8;         // hosts noted for one of them; further ones are not
inline constexpr std::size_t kRestorePoints = 64;           // of a job; the oldest are forgotten
inline constexpr std::size_t kHostsOfJob = 64;              // remembered as having run it; those of the oldest generations go

// Tasks.
inline constexpr std::size_t kStatusTextBytes = 256;        // a longer STATUS= is cut
inline constexpr std::size_t kStderrTailBytes = 2048;       // kept with an exit
inline constexpr std::size_t kNotifyMessageBytes = 4096;    // a longer datagram is dropped
inline constexpr std::size_t kStreams = 256;                // open log/exec/watch streams per agent

}  // namespace dtrain::limits
