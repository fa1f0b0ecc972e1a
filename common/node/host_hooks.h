// Decides when the administrator's programs run on this host: the prolog before a job's first task here, the epilog
// after its last one. Pure: the agent runs them (RunHook). Where neither is configured, nothing is looked at and
// nothing is written.
//
//   a task is to be staged  -> note on the disk -> prolog -> noted as done -> the staging goes on
//   nothing of the job is here or may come -> noted as not done -> epilog -> the note is erased
//
// The note is written first, so that an epilog follows even if the agent is killed in between: each program runs at
// least once, and exactly once if nothing goes wrong. A job never has two of them running at a time.
//
// If a prolog fails, this host refuses the job (job::TaskObservation::host_refused), and the epilog runs, because the
// prolog may have done half of its work. If an epilog fails, the host is unfit (host_health.h) until the epilog has
// succeeded. A job waits for the epilog of the job that had its GPUs before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/node/staging.h"

namespace dtrain::node {

inline constexpr Duration kHostHookTime = 5min;      // for one program; then it is killed and has failed
inline constexpr Duration kHostHookDies = 10s;       // for a killed program; then it counts as one that cannot be killed
inline constexpr Duration kEpilogAgainEvery = 1min;  // while the epilog fails
inline constexpr std::size_t kHostHooksAtOnce = 8;   // programs of different jobs; further ones wait
// A job that is between two generations, and may come back to this host, keeps its epilog waiting for so long; the
// epilog runs earlier if another job is to have its GPUs.
inline constexpr Duration kEpilogHeldFor = 1min;

class HostHooks final : public StagingStep {
 public:
  HostHooks(Context& context, Staging& staging) : StagingStep(context, staging, "host-hooks") {}

  void restore(const std::string& key, const std::string& note) override;
  void begin(const StagedTask& task) override;  // passes once the prolog has succeeded
  void give_up(const AssignmentId& id) override;
  void persisted(std::uint64_t ticket) override;
  void hook_ended(const HookEnded& e) override;
  void drive() override;
  Instant deadline() const override;

  // Why the host is unfit because of an epilog; "": no epilog makes it unfit.
  std::string unfit() const override;
  // The reasons for which the host became unfit since the last call.

 private:
  enum class Hook : unsigned char { none, prolog, epilog };
  // Stored on the disk under the job's id.
  struct Note {
    std::string name, user;
    std::set<std::uint32_t> gpus;  // all GPUs that the job had here
    bool ready = false;            // the job's tasks may be staged: the prolog succeeded, or there is none
    std::string boot_id;           // when `ready` was noted; what a prolog did does not survive a reboot
    std::string problem;           // how its epilog failed; "": it did not
    template <class V>
    void fields(V& v) {
      v("name", name);
      v("user", user);
      v("gpus", gpus);
      v("ready", ready);
      v("boot_id", boot_id);
      v("problem", problem);
    }
  };
  struct JobHere {
    Note note;
    bool noted = false;              // the note is on the disk
    std::uint64_t ticket = 0;        // of the note's write that is waited for; 0: none
    std::set<AssignmentId> waiting;  // for the prolog, or for the end of an epilog
    std::string said;                // what these wait for, as last reported
    Hook hook = Hook::none;          // the program that runs
    std::uint64_t token = 0;         // of the run; 0: none
    Instant began{};
    bool stuck = false;           // the program was killed and does not die
    bool owed = false;            // the epilog failed and must run again
    Instant again{};              // when it runs again
    std::optional<Instant> left;  // since when nothing of the job is here, though its next generation may come
    std::string problem;          // why the host is unfit because of this job
  };
  using Jobs = std::map<JobId, JobHere>;

  bool configured() const { return !c_.options.prolog.empty() || !c_.options.epilog.empty(); }
  std::set<std::uint32_t> gpus_here(JobId job) const;
  bool needs_prolog(const JobHere& here) const { return !c_.options.prolog.empty() && !here.note.ready; }
  void advance(Jobs::iterator it);
  void write_note(Jobs::iterator it, bool wait);
  void run(Jobs::iterator it, Hook hook);
  void prolog_ended(Jobs::iterator it, const std::string& problem);
  void epilog_ended(Jobs::iterator it, const std::string& problem);
  void release(Jobs::iterator it);
  void refuse_all(Jobs::iterator it, const std::string& reason);
  void say(Jobs::iterator it, const std::string& reason);
  void set_problem(JobHere& here, std::string problem);
  bool comes_back(JobId id) const;
  std::optional<Instant> leaves_at(JobId id, const JobHere& here) const;
  // Returns another job whose epilog must run first; nullptr: there is none.
  const JobHere* before(JobId id, const JobHere& here) const;
  bool is_awaited(JobId id, const JobHere& here) const;
  std::size_t running() const;

  Jobs jobs_;  // jobs that began here; bounded by what is placed here, since a host with a failing epilog gets nothing new
};

}  // namespace dtrain::node
