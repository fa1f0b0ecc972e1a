// Are the GPUs of a task free once it has ended? Its whole tree is gone then, but a process may have got out of that (a container's
// engine, cron, the user's own service manager), and whoever is given the GPUs next would find their memory taken.
//
// Who holds a device node is looked at until nobody does, for kReclaimPatience: so long the task's end is not told, and the GPUs are
// nobody else's. Then the end is told, for its job must go on; but the host is given no new tasks, with the culprit as the reason,
// until the GPUs are free.
//
// No culprits are the processes of tasks, which end with these (a library may open every GPU to ask how it is), and those of system
// accounts (kFirstUserUid): services that watch the GPUs or keep their driver loaded. Where the task itself ran as such an account, its
// processes that began since the task did are culprits as well.
//
// All of it outlasts the agent: which GPUs an assignment has is noted on the disk before its first attempt begins, and erased when they
// are free. A later life of the agent knows from that who held what, and looks after tasks that have ended or were taken from this host
// meanwhile. Nothing outlasts the machine's boot. The note is written beside the launch, so that the attempt hardly ever waits for it.
//
// Pure: FindGpuHolders looks (agent/proc/gpu_holders.h), one at a time, for all that are due.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/node/context.h"

namespace dtrain::node {

inline constexpr Duration kReclaimPatience = 10s;  // who was killed with the task may still be letting go of its memory
inline constexpr Duration kReclaimLook = 500ms;    // from one look at who holds them to the next
inline constexpr Duration kHeldLook = 10s;         // likewise, after the patience
// Debian policy 9.2.2: below are system accounts. People whose directory gives them lower numbers are not seen.
inline constexpr std::uint32_t kFirstUserUid = 1000;
inline constexpr std::size_t kHoldersNamed = 4;

class GpuReclaim {
 public:
  explicit GpuReclaim(Context& c) : c_(c) {}

  // What earlier lives of the agent noted.
  void start(const std::map<std::string, std::string>& records);
  void launched(const task::TaskOrder& order);  // is about to be
  // It begins once the note is on the disk.
  void start_attempt(const AssignmentId& id, AttemptNumber attempt);
  void end_shim(const AssignmentId& id);
  // Nothing of it runs any more. `since`: when it began here, where no note says it (it was launched by an agent that wrote none).
  void begin(const task::TaskOrder& order, Instant since);
  // Notes of assignments of which nothing is here that could end: they were taken from this host while no agent ran, or never began.
  void begin_others(const std::function<bool(const AssignmentId&)>& is_here);

  void found(const GpuHoldersFound& e);
  void drive();  // looks that are due
  Instant deadline() const;

  // Whether a Persist with that ticket is of this part.
  static bool owns(std::uint64_t ticket) { return ticket >> 61 == 1; }
  void persisted(std::uint64_t ticket);

  // Whose end may be told, since the last call.
  std::vector<AssignmentId> take_over() { return std::exchange(over_, {}); }
  // Its GPUs are held, or may be: the coordinator had not heard of it. Its staging fails, by take_staged().
  bool refuses(const task::TaskOrder& order);
  std::vector<Staged> take_staged() { return std::exchange(staged_, {}); }
  // Why this host is given no new tasks; "": nobody holds what is not theirs.
  std::string reason() const;
  // False: of something that ended nobody knows yet whether it is held.
  bool settled() const;

 private:
  // On the disk, under kRecord and the assignment's id.
  struct Note {
    AssignmentId id;
    std::string task;  // for people
    job::User user;
    Instant since{};      // it was launched
    std::string boot_id;  // then
    std::vector<task::OwnGpu> gpus;
    std::string held;  // by whom, after the patience; "": not yet, and its end is not told
    template <class V>
    void fields(V& v) {
      v("id", id);
      v("task", task);
      v("user", user);
      v("since", since);
      v("boot_id", boot_id);
      v("gpus", gpus);
      v("held", held);
    }
  };
  struct Use {
    Note note;
    bool noted = false;                    // on the disk, or about to be
    bool begun = false;                    // an attempt may have had them
    std::uint64_t ticket = 0;              // of the note that is waited for; 0: none
    std::optional<AttemptNumber> attempt;  // that waits for it
    std::optional<Instant> ended;          // since when its GPUs are to be free
    Instant next{};                        // look, once it ended
  };
  using Uses = std::map<AssignmentId, Use>;

  // Those of the log count from 1; the highest bits are Forming's and HostHooks'.
  static constexpr std::uint64_t kTickets = std::uint64_t{1} << 61;
  static constexpr const char* kRecord = "gpus/";

  Use& use_of(const task::TaskOrder& order, Instant since);
  void write_note(Use& use);
  void forget(Uses::iterator it);
  void judge(Uses::iterator it, const Result<std::vector<GpuHolder>>& all);
  std::vector<GpuHolder> culprits(const Note& note, const std::vector<GpuHolder>& holders) const;
  std::string describe(const Note& note, const std::vector<GpuHolder>& culprits) const;

  Context& c_;
  Uses uses_;  // of assignments that have GPUs here: bounded by these
  std::uint64_t look_ = 0;  // that is under way; 0: none
  std::set<AssignmentId> looked_for_;  // by it
  std::uint64_t tickets_ = 0;
  std::vector<AssignmentId> over_;
  std::vector<Staged> staged_;
};

}  // namespace dtrain::node
