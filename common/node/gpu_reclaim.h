// Decides whether the GPUs of a task are free once the task has ended. By then its whole process tree is gone, but a
// process may have left the tree (through a container engine, cron, or the user's own service manager), and the next
// owner of the GPUs would find their memory in use.
//
// The holders of the device nodes are looked for until there is none, for at most kReclaimPatience. Meanwhile the
// task's end is not reported, and nobody else gets the GPUs. Then the end is reported, because the job must go on;
// but the host gets no new tasks, with the culprit as the reason, until the GPUs are free.
//
// Not culprits are processes of tasks, which end with their tasks (a library may open every GPU to query it), and
// processes of system accounts (below kFirstUserUid): services that watch the GPUs or keep their driver loaded. Where
// the task itself ran as such an account, processes of that account that began after the task are culprits as well.
//
// All this survives the agent: which GPUs an assignment has is noted on the disk before its first attempt begins, and
// the note is erased when the GPUs are free. From the notes a later life of the agent knows who had which GPUs, and
// looks after tasks that meanwhile ended or were taken from this host. Nothing survives a reboot. The note is written
// during the launch, so that the attempt hardly ever waits for it.
//
// Pure: FindGpuHolders looks (agent/proc/gpu_holders.h), one look at a time for all that are due.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/node/staging.h"

namespace dtrain::node {

inline constexpr Duration kReclaimPatience = 10s;  // a process that was killed with the task may still be releasing GPU memory
inline constexpr Duration kReclaimLook = 500ms;    // between two looks within the patience
inline constexpr Duration kHeldLook = 10s;         // between two looks after the patience
// Debian policy 9.2.2: lower uids are system accounts. A site whose directory gives people lower uids is not covered.
inline constexpr std::uint32_t kFirstUserUid = 1000;
inline constexpr std::size_t kHoldersNamed = 4;

class GpuReclaim final : public StagingStep {
 public:
  GpuReclaim(Context& c, Staging& staging) : StagingStep(c, staging, "gpus") {}

  void restore(const std::string& key, const std::string& note) override;
  // Refuses if the task's GPUs are held, or may be, which the coordinator did not know when it gave them.
  void begin(const StagedTask& task) override;
  void launching(const task::TaskOrder& order) override;
  bool holds(const AssignmentId& id) override;  // until the note is on the disk
  // An assignment that has no note was launched by an agent that wrote none.
  bool ended(const task::TaskOrder& order, Instant since) override;
  bool settled() const override;
  void persisted(std::uint64_t ticket) override;
  void drive() override;  // begins the looks that are due
  Instant deadline() const override;

  void found(const GpuHoldersFound& e);
  // Why this host gets no new tasks; "": no GPU is held by a process that should have ended.
  std::string unfit() const override;

 private:
  // Stored on the disk under the assignment's id.
  struct Note {
    AssignmentId id;
    std::string task;  // its name, for people
    job::User user;
    Instant since{};      // when it was launched
    std::string boot_id;  // at the launch
    std::vector<task::OwnGpu> gpus;
    std::string held;  // the holders after the patience, for people; "": the patience is not over, and the end is not reported
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
    bool noted = false;            // the note is on the disk or being written
    bool begun = false;            // an attempt may have used the GPUs
    std::uint64_t ticket = 0;      // of the note's write that the attempt waits for; 0: none
    std::optional<Instant> ended;  // since when the GPUs should be free
    Instant next{};                // the next look, after the end
  };
  using Uses = std::map<AssignmentId, Use>;

  // Looks after notes of assignments that are not here any more: they were taken from this host while no agent ran,
  // or never began.
  void begin_others();
  Use& use_of(const task::TaskOrder& order, Instant since);
  void write_note(Use& use);
  void forget(Uses::iterator it);
  void judge(Uses::iterator it, const Result<std::vector<GpuHolder>>& all);
  std::vector<GpuHolder> culprits(const Note& note, const std::vector<GpuHolder>& holders) const;
  std::string describe(const Note& note, const std::vector<GpuHolder>& culprits) const;

  Uses uses_;                          // assignments that have GPUs here, and so at most one for each GPU or fewer
  std::uint64_t look_ = 0;             // token of the look under way; 0: none
  std::set<AssignmentId> looked_for_;  // assignments that the look under way is for
};

}  // namespace dtrain::node
