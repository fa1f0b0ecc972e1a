// The protocol between dtrain-shim and the agent, and the shim's files. Described in docs/shim.md.
//
// Both sides run on one host but may have different versions: a shim lives as long as its assignment, while the agent may
// be upgraded. So structs are only ever appended to; a reader copies the part that it knows into zeroed memory
// (read_struct) and ignores the rest. Numbers are never reused. An unknown command is answered with
// Outcome::unknown_command; an unknown message is ignored.
//
// Transport: SOCK_SEQPACKET, one struct for each packet. Plain C types only: the shim has neither exceptions nor heap.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace dtrain::shim {

inline constexpr uint32_t kVersion = 8;        // newest that this code speaks
inline constexpr uint32_t kOldestVersion = 1;  // oldest that this code speaks
// Older versions. 1: without leases; such a shim, adopted by a newer agent, runs on without one, and so does a shim
// that was launched without one (kLeased is not set). 2: without kUnit, which no agent of that version writes. 3:
// without CPUs of its own: its attempts run on all CPUs, whatever the launch file says. 4: without grace for what
// outlives the main process, and without kInterpret. 5: without ranks: one process, whatever the launch file says. 6: without standbys.
// 7: without `run`.

inline constexpr size_t kStatusBytes = 256;   // = limits::kStatusTextBytes
inline constexpr size_t kTailBytes = 2048;    // = limits::kStderrTailBytes
inline constexpr size_t kNotifyBytes = 4096;  // = limits::kNotifyMessageBytes
inline constexpr size_t kPacketBytes = 8192;  // the largest packet of either side, with room to grow
inline constexpr size_t kColdBytes = 96;      // of the reason why a standby was not used
inline constexpr uint32_t kMostRanks = 256;   // = limits::kRanksPerTask
inline constexpr uint32_t kRankVariables = 64;
inline constexpr uint32_t kRlimits = 16;
inline constexpr uint32_t kGroups = 65536;                                        // NGROUPS_MAX
inline constexpr uint32_t kCpuBytes = 8192;                                       // of a set of CPUs: 65,536 of them
inline constexpr uint32_t kNumaNodes = 1024;                                      // MAX_NUMNODES of the largest kernels
inline constexpr int64_t kMostGrace = int64_t{3650} * 24 * 3600 * 1'000'000'000;  // the longest duration of a job file

// Names inside the assignment's directory.
inline constexpr char kLaunchFile[] = "launch";
inline constexpr char kSocketFile[] = "shim.sock";
inline constexpr char kNotifyFile[] = "notify";
inline constexpr char kStateFile[] = "state";  // the present Record, rewritten in place
inline constexpr char kExitFile[] = "exit";    // the Record of the newest ended attempt, renamed into place
inline constexpr char kExitDraft[] = "exit.new";

// The agent's end of a socket pair that a new shim inherits: its first connection. systemd passes it as descriptor 0,
// and it is moved to this number.
inline constexpr int kBirthSocket = 3;

inline constexpr int kStandbySocket = 3;  // in a standby: what dtrain-warm.py is told to speak through

// Empty arguments after its directory, one byte each: room for the longer name of a later assignment (`serve`).
inline constexpr size_t kPathRoom = 16;

// ---------------------------------------------------------------- agent -> shim

enum class Command : uint16_t {
  hello = 1,          // a: oldest, b: newest version of the agent
  start = 2,          // a: attempt
  signal = 3,         // a: signal, b: 1 for the whole tree; grace_ns: processes that outlive the main one are left alone for so long
  kill = 4,           // SIGKILL to the whole tree, frozen or not
  freeze = 5,         // a: 1 freeze, 0 thaw
  end = 6,            // kill what is left and exit; a: 1: the shim may stay for another assignment
  lease_answer = 7,   // a: 1 granted, 0 superseded; nonce, epoch
  require_lease = 8,  // run under a lease from now on: lease_ns, epoch, nonce: of its first question
  // to a shim that stays: its next assignment; the packet ends with `a` bytes of its directory's path. Then
  // everything as for a new shim
  serve = 9,
  // start a program beside the main process, as a part of the task (LaunchedReport). a: number of its arguments, b: bytes of these;
  // with kRunDescriptors descriptors: stdin, stdout, stderr, a socket for signals and the report, a file of the arguments
  run = 10,
};

struct CommandPacket {
  uint16_t command = 0;
  uint16_t reserved = 0;
  uint32_t sequence = 0;  // repeated in the reply
  uint32_t a = 0;
  uint32_t b = 0;
  uint64_t nonce = 0;  // from here on: version 2
  uint64_t epoch = 0;
  int64_t lease_ns = 0;
  int64_t grace_ns = 0;  // from here on: version 5
};
inline constexpr size_t kRunDescriptors = 5;
inline constexpr uint32_t kRunArguments = 1024;
inline constexpr uint32_t kRunBytes = 1 << 20;  // of all arguments, each with its NUL
inline constexpr uint32_t kMostLaunched = 64;   // programs that run beside the main process at a time
inline constexpr size_t kCommandV1Bytes = 16;   // what every version has
static_assert(sizeof(CommandPacket) == 48);

// ---------------------------------------------------------------- shim -> agent

enum class Outcome : uint16_t {
  done = 0,
  already = 1,          // start: that attempt runs already
  attempt_too_low = 2,  // start: a higher one was started before
  attempt_ended = 3,    // start: that same attempt has run
  busy = 4,             // start: another attempt has not ended yet
  failed = 5,           // see error
  no_attempt = 6,       // signal, kill, freeze: nothing runs
  unknown_command = 7,
  wrong_version = 8,
  withdrawn = 9,    // start: killed, ended or ordered anew while it waited for its grant
  superseded = 10,  // start: the assignment belongs to another host or to nobody
};

inline constexpr uint16_t kReplyPacket = 1;
inline constexpr uint16_t kRecordPacket = 2;
inline constexpr uint16_t kAskPacket = 3;

// A question for the coordinator: is the assignment still this shim's? Answered by lease_answer, or not at all.
struct AskPacket {
  uint16_t packet = kAskPacket;
  uint16_t reserved = 0;
  uint32_t attempt = 0;
  uint64_t nonce = 0;
  int64_t t0_ns = 0;  // CLOCK_BOOTTIME: a grant is good for one lease from then on
};
inline constexpr size_t kAskBytes = 24;  // what every version has
static_assert(sizeof(AskPacket) == kAskBytes);

// Exactly one for each command. Under a lease, `start` is answered when it is granted or withdrawn; if its connection
// ends first, it is withdrawn without an answer. `hello`: a = version spoken from now on. `end`: a = 1: the shim has left
// the assignment, no longer uses its files, and stays for another (`serve`); until then it accepts no other command.
struct ReplyPacket {
  uint16_t packet = kReplyPacket;
  uint16_t command = 0;
  uint32_t sequence = 0;
  uint16_t outcome = 0;
  uint16_t reserved = 0;
  int32_t error = 0;     // errno
  uint32_t attempt = 0;  // start: the attempt in question; too low: the highest seen
  int32_t pid = 0;
  int64_t started_ns = 0;  // CLOCK_REALTIME
  uint32_t a = 0;
  uint32_t reserved2 = 0;
};
static_assert(sizeof(ReplyPacket) == 40);

enum class Phase : uint8_t {
  idle = 0,  // no attempt was ever started
  running = 1,
  ending = 2,  // its main process (of ranks: the first that failed, or the last) is gone but its tree is not: the tree has its grace, or is
               // being killed
  ended = 3,   // the whole tree is gone and its output is in the log
};

// What a new process was doing when it failed before its program ran. interpret: the program exists, but its
// interpreter does not; the record names the interpreter in place of the last stderr output.
enum class Step : uint8_t { none = 0, execute = 1, enter_directory = 2, become_user = 3, set_limit = 4, interpret = 5 };

inline constexpr uint16_t kReady = 1;          // READY=1 was received
inline constexpr uint16_t kStopping = 2;       // STOPPING=1 was received
inline constexpr uint16_t kFrozen = 4;         // by order; confirmed
inline constexpr uint16_t kOutOfMemory = 8;    // the kernel killed a process of the task because memory ran out
inline constexpr uint16_t kFreezeFailed = 16;  // killed because it could not be frozen in time
inline constexpr uint16_t kLeased = 32;        // it runs under a lease
inline constexpr uint16_t kLeaseFrozen = 64;   // frozen until a fresh grant comes; confirmed
inline constexpr uint16_t kSuperseded = 128;   // the assignment belongs to another host or to nobody: nothing is ever started again
inline constexpr uint16_t kStandsBy = 512;     // kStandby: all its processes are ready
inline constexpr uint16_t kWarm = 1024;        // standbys became all processes of the attempt
inline constexpr uint16_t kHostStops = 256;    // its host had asked the shim to end, at most kHostStopBound before the attempt ended

// What a launched program's own socket (SOCK_SEQPACKET) carries to the agent, once: that it could not start, or how it ended. The other
// way go signals for its session, one int32_t each. If either end closes the socket, the program runs on.
struct LaunchedReport {
  uint16_t outcome = 0;  // Outcome: done, no_attempt, busy (the task stands still, or too many run), failed
  uint8_t step = 0;      // Step; if not none, the program was never executed: see error
  uint8_t reserved = 0;
  int32_t error = 0;   // errno
  int32_t status = 0;  // as of waitpid(2)
};
static_assert(sizeof(LaunchedReport) == 12);

// The state of the present attempt: sent to the agent at every change, and written to `state` and `exit`. The agent finds
// what is new by comparing, so a record that found the socket full may be replaced by a later one. On the wire and on disk:
// the struct, then, beginning at fixed_bytes, status_bytes of status, tail_bytes of the last stderr output, and pid_count int32_t: the
// process of each rank, 0 if it has ended.
struct Record {
  uint16_t packet = kRecordPacket;
  uint16_t fixed_bytes = 0;
  uint32_t version = kVersion;
  int32_t shim_pid = 0;
  uint32_t attempt = 0;  // the highest that was ever started
  uint8_t phase = 0;     // Phase
  uint8_t step = 0;      // Step; if not none, the program was never executed: see error
  uint16_t flags = 0;
  int32_t pid = 0;         // of the main process
  int64_t started_ns = 0;  // CLOCK_REALTIME
  int64_t ended_ns = 0;
  int32_t code = 0;  // set when ended: exit status, or 126/127 with a step
  int32_t signal = 0;
  int32_t error = 0;  // errno of step
  // WATCHDOG=1 of this attempt. Of several main processes: how often all that send it, and have not ended, had sent it since the last time.
  uint32_t watchdogs = 0;
  uint32_t statuses = 0;  // STATUS= messages of this attempt
  uint16_t status_bytes = 0;
  uint16_t tail_bytes = 0;
  uint64_t dropped_bytes = 0;  // output of this shim that found no room on disk
  char boot_id[40] = {};       // of the kernel at the time of writing, NUL-terminated
  int64_t lease_until_ns = 0;  // CLOCK_BOOTTIME: the end of the attempt's lease. From here on: version 2
  int64_t lease_ns = 0;        // length of its lease
  uint64_t epoch = 0;          // the highest of a coordinator that the shim has seen
  uint32_t rank = 0;           // one more than the rank whose failure ended the attempt; 0: none did. From here on: version 6
  // One more than the main process that stands still by a signal, or did so when the attempt ended; 0: none. From here on: version 8
  uint32_t stopped = 0;
  // Why a standby did not become what it should: of the attempt, or of those that this shim prepares. "": none failed. From here on:
  // version 7
  char cold[kColdBytes] = {};
  int64_t stopped_ns = 0;  // since when `stopped` stands still, CLOCK_REALTIME. From here on: version 8
  uint32_t pid_count = 0;  // while an attempt of several main processes runs: those that have begun
  uint32_t reserved = 0;
};
inline constexpr size_t kRecordV1Bytes = 112;  // what every version has
static_assert(sizeof(Record) == 160 + kColdBytes);
inline constexpr size_t kRecordBytes = sizeof(Record) + kStatusBytes + kTailBytes + kMostRanks * sizeof(int32_t);
static_assert(kRecordBytes < kPacketBytes);

// ---------------------------------------------------------------- launch file

inline constexpr uint64_t kLaunchMagic = 0x31484e4c4d494853;  // "SHIMLNH1"
inline constexpr size_t kLaunchBytes = 8 << 20;               // larger: refused by both sides

inline constexpr uint32_t kSwitchUser = 1;   // become uid, gid, groups
inline constexpr uint32_t kSignalMain = 4;   // a stop that the shim passes on goes only to the main process
inline constexpr uint32_t kStandby = 8;      // no assignment yet: its processes only prepare for one (docs/warm-standby.md)
inline constexpr uint32_t kFirstLeads = 16;  // ranks that begin cold follow the first (common/task/lead.h). Since version 8
inline constexpr uint32_t kUnit = 2;         // the shim is a service of systemd: it is in its cgroups already, in
                                             // which the task's is to be made; its first connection is descriptor 0;
                                             // on SIGTERM it sends stop_signal to the task

struct LaunchRlimit {
  uint32_t resource = 0;  // RLIMIT_*
  uint32_t reserved = 0;
  uint64_t value = 0;  // soft and hard
};

// Offsets count from the start of the file and point to NUL-terminated strings; lists are strings one after the other.
struct LaunchHeader {
  uint64_t magic = kLaunchMagic;
  uint32_t version = kVersion;
  uint32_t header_bytes = 0;
  uint64_t total_bytes = 0;
  uint32_t flags = 0;
  uint32_t agent_uid = 0;  // who may connect besides root
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t groups_offset = 0;  // uint32_t[]
  uint32_t group_count = 0;
  uint32_t argv_offset = 0;
  uint32_t argv_count = 0;
  uint32_t env_offset = 0;  // "NAME=value"
  uint32_t env_count = 0;
  uint32_t work_dir_offset = 0;
  uint32_t notify_offset = 0;  // NOTIFY_SOCKET: absolute path of <dir>/notify, or @NAME in the abstract namespace
  uint32_t cgroup_offset = 0;  // the assignment's v2 cgroup, with children `shim` and `task`; "" none
  uint32_t memory_offset = 0;  // its v1 memory cgroup; "" none
  uint32_t last_attempt = 0;   // lower or equal attempt numbers are refused
  uint32_t first_log = 0;      // K of the first log file
  uint32_t log_files = 0;
  uint32_t rlimit_count = 0;
  uint32_t address_offset = 0;  // for the agent: the address on which the port is tested before each start
  uint32_t port = 0;            // for the agent; 0: none
  uint64_t log_file_bytes = 0;
  LaunchRlimit rlimits[kRlimits];
  int64_t lease_ns = 0;      // 0: it runs without a lease. From here on: version 2
  uint64_t epoch = 0;        // of the coordinator, as far as the agent knows
  uint64_t first_nonce = 0;  // of its first question: random, so that no two shims ever use the same
  int32_t stop_signal = 15;  // with kUnit. From here on: version 3
  uint32_t reserved = 0;
  uint32_t cpus_offset = 0;  // CPUs of its own, one bit each, the lowest first. From here on: version 4
  uint32_t cpu_bytes = 0;    // length of that, in whole words of the kernel; 0: the task may use all CPUs
  int32_t numa_node = -1;    // memory of this node is used first; -1: any
  uint32_t reserved2 = 0;
  int64_t stop_grace_ns = 0;  // grace when the host stops, for processes that outlive the main one. From here on: version 5
  // The attempt is so many processes at once; 0: one. Each has variables of its own, rank_env_count strings "NAME=value" for each, one
  // process after the other. From here on: version 6
  uint32_t rank_count = 0;
  uint32_t rank_env_count = 0;
  uint32_t rank_env_offset = 0;
  uint32_t target = 0;        // index in argv of the first argument that a standby is given; 0: none can run it. From here on: version 7
  uint32_t error_offset = 0;  // "NAME=" and the beginning of a path, which ends with ATTEMPT.RANK in each process; 0: none
  uint32_t reserved3 = 0;
};
inline constexpr size_t kLaunchV1Bytes = 368;  // what every version has
static_assert(sizeof(LaunchHeader) == 448);

// ---------------------------------------------------------------- reading structs of any version

// Copies the part that both sides know. `size`: of the struct as written. Returns false if it is shorter than
// `minimum`, which every version has.
template <class T>
bool read_struct(const void* bytes, size_t size, size_t minimum, T& out) {
  if (size < minimum) return false;
  memcpy(static_cast<void*>(&out), bytes, size < sizeof(T) ? size : sizeof(T));
  return true;
}

inline bool read_record(const void* bytes, size_t size, Record& out) {
  uint16_t fixed = 0;
  if (size < kRecordV1Bytes) return false;
  memcpy(&fixed, static_cast<const char*>(bytes) + offsetof(Record, fixed_bytes), sizeof(fixed));
  return fixed <= size && read_struct(bytes, fixed, kRecordV1Bytes, out) && out.packet == kRecordPacket;
}

inline bool read_launch_header(const void* bytes, size_t size, LaunchHeader& out) {
  uint32_t header = 0;
  if (size < kLaunchV1Bytes) return false;
  memcpy(&header, static_cast<const char*>(bytes) + offsetof(LaunchHeader, header_bytes), sizeof(header));
  return header <= size && read_struct(bytes, header, kLaunchV1Bytes, out) && out.magic == kLaunchMagic && out.total_bytes == size &&
         out.rlimit_count <= kRlimits && out.groups_offset <= size && out.group_count <= kGroups &&
         out.group_count <= (size - out.groups_offset) / sizeof(uint32_t) && out.cpus_offset <= size && out.cpu_bytes <= kCpuBytes &&
         out.cpu_bytes <= size - out.cpus_offset && out.rank_count <= kMostRanks && out.rank_env_count <= kRankVariables &&
         (out.target == 0 || out.target < out.argv_count);
}

}  // namespace dtrain::shim
