// The administrator's programs of this host: the prolog before a job's first task here, the epilog after its last one. Pure: decides
// when they run; the agent runs them (RunHook). Where neither is configured nothing is looked at and nothing is written.
//
//   a task is to be staged  -> note on the disk -> prolog -> noted as done -> the staging goes on
//   nothing of the job is here or may come -> noted as not done -> epilog -> the note is erased
//
// The note comes first, so that what was begun is ended also when the agent is killed in between: each of them runs at least once,
// and once where nothing goes wrong. Of a job never two at a time.
//
// A prolog that fails: this host refuses the job (job::TaskObservation::host_refused), and its epilog runs, for it may have done half.
// An epilog that fails: the host is unfit (host_health.h) until it has succeeded. A job whose GPUs another one had waits for the
// epilog of that one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/node/checkpoint_copies.h"
#include "common/node/context.h"

namespace dtrain::node {

inline constexpr Duration kHostHookTime = 5min;        // of one; then it is killed, and has failed
inline constexpr Duration kHostHookDies = 10s;         // a killed one; then it counts as one that cannot be killed
inline constexpr Duration kEpilogAgainEvery = 1min;    // while it fails
inline constexpr std::size_t kHostHooksAtOnce = 8;     // of different jobs; others wait
// Between two generations, while its next one may begin here. Then, or when another job is to have its GPUs, the epilog runs.
inline constexpr Duration kEpilogHeldFor = 1min;

class HostHooks {
 public:
  HostHooks(Context& context, CheckpointCopies& copies) : c_(context), copies_(copies) {}

  // What earlier lives of the agent noted.
  void start(const std::map<std::string, std::string>& records);
  void stage(Stage stage);  // goes on to the checkpoints once the prolog has succeeded
  std::vector<AssignmentId> waiting(JobId job) const;
  void give_up(const AssignmentId& id);
  std::vector<Staged> take_staged() { return std::exchange(staged_, {}); }
  std::vector<std::pair<AssignmentId, std::string>> take_reasons() { return std::exchange(reasons_, {}); }

  // Whether a Persist with that ticket is of this part.
  static bool owns(std::uint64_t ticket) { return ticket >> 62 == 1; }
  void persisted(std::uint64_t ticket);
  bool ended(const HookEnded& e);  // true: ours
  void drive();
  Instant deadline() const;

  // Why the host is unfit; "": for nothing of this.
  std::string unfit() const;
  // For which it became so since the last call.
  std::vector<std::string> take_problems() { return std::exchange(problems_, {}); }

 private:
  enum class Hook : unsigned char { none, prolog, epilog };
  // On the disk, under kRecord and the job's id.
  struct Note {
    std::string name, user;
    std::set<std::uint32_t> gpus;  // all that it had here
    bool ready = false;            // its tasks may be staged: the prolog succeeded, or there was none
    std::string boot_id;           // then. What a prolog did to a machine does not outlast its boot
    std::string problem;           // its epilog failed, and how
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
    bool noted = false;           // on the disk
    std::uint64_t ticket = 0;     // of the note that is being written and waited for; 0: none
    std::map<AssignmentId, Stage> stages;
    std::string said;             // for what they wait
    Hook hook = Hook::none;       // that runs
    std::uint64_t token = 0;      // of it
    Instant began{};
    bool stuck = false;           // it was killed, and does not die
    bool owed = false;            // its epilog failed
    Instant again{};              // then it is run again
    std::optional<Instant> left;  // since when nothing of it is here, though its next generation may come
    std::string problem;          // why the host is unfit for its sake
  };
  using Jobs = std::map<JobId, JobHere>;

  // Those of the log count from 1; the highest bit is Forming's.
  static constexpr std::uint64_t kTickets = std::uint64_t{1} << 62;
  static constexpr const char* kRecord = "host-hooks/";

  bool configured() const { return !c_.options.prolog.empty() || !c_.options.epilog.empty(); }
  std::set<std::uint32_t> gpus_here(JobId job) const;
  bool needs_prolog(const JobHere& here) const { return !c_.options.prolog.empty() && !here.note.ready; }
  void advance(Jobs::iterator it);
  void write_note(Jobs::iterator it, bool wait);
  void run(Jobs::iterator it, Hook hook);
  void prolog_ended(Jobs::iterator it, const std::string& problem);
  void epilog_ended(Jobs::iterator it, const std::string& problem);
  void release(Jobs::iterator it);
  void refuse(Jobs::iterator it, const std::string& reason);
  void say(Jobs::iterator it, const std::string& reason);
  void set_problem(JobHere& here, std::string problem);
  bool comes_back(JobId id) const;
  std::optional<Instant> leaves_at(JobId id, const JobHere& here) const;
  // Another one whose epilog comes first; nullptr: none.
  const JobHere* before(JobId id, const JobHere& here) const;
  bool is_awaited(JobId id, const JobHere& here) const;
  std::size_t running() const;

  Context& c_;
  CheckpointCopies& copies_;
  Jobs jobs_;  // begun here; bounded by what is placed here, for a host with an epilog that fails is given nothing
  std::uint64_t tickets_ = 0;
  std::vector<Staged> staged_;
  std::vector<std::pair<AssignmentId, std::string>> reasons_;
  std::vector<std::string> problems_;
};

}  // namespace dtrain::node
