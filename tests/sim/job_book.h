// What the simulated user knows: every job file ever submitted (by its tag), every job seen (by its id), and what was
// asked for each. Checkers compare the agent with it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/job/job_spec.h"
#include "common/wire/control.h"

namespace dtrain::sim {

// One job file. The tag is a label of the job and a word of every task's argv, so that both tell which one they are.
struct JobFile {
  std::uint64_t tag = 0;
  job::JobSpec spec;
  std::string encoded;
};

struct KnownJob {
  JobId id = 0;
  std::uint64_t tag = 0;
  std::string name;
  Instant known_since{};
  bool acknowledged = false;  // a submit of it was answered with this id
  std::string state;          // as the agent last reported; "": not seen yet
  Instant state_since{};
  std::uint32_t restarts = 0;  // as the agent last reported
  bool gone = false;           // it was listed once and is no longer
  // Requests, answered or not: a lost answer may hide that the request was carried out.
  bool removal_asked = false;  // delete, replace
  bool cancel_asked = false, suspend_asked = false, scratch_asked = false;
  std::uint32_t steered = 0;                                        // restarts, suspends, resumes, scales, reruns
  Instant steered_at{};                                             // when last
  std::map<std::string, Instant> tasks_restarted;                   // when last
  std::map<std::string, std::pair<std::uint32_t, Instant>> shrunk;  // role: fewest replicas asked for, when last so few
  Instant restarted{};                                              // restart of the whole job, or rerun: when last
  std::uint32_t crashes = 0;                                        // lives of the agent that ended meanwhile
  std::uint32_t reboots = 0;
  bool may_move = false;  // a host was drained meanwhile: its tasks may begin elsewhere at no cost
};

class JobBook {
 public:
  const JobFile& add_file(job::JobSpec spec, std::uint64_t tag);
  const JobFile* file(std::uint64_t tag) const;
  const std::map<std::uint64_t, JobFile>& files() const { return files_; }

  KnownJob& know(JobId id, std::uint64_t tag, const std::string& name, Instant now);
  const KnownJob* find(JobId id) const;
  KnownJob* find(JobId id);
  const std::map<JobId, KnownJob>& jobs() const { return jobs_; }
  const job::JobSpec* spec_of(JobId id) const;  // as submitted; nullptr: never heard of

  void asked(const wire::ActionRequest& action, Instant now);
  void host_drained(Instant now);
  // The jobs with the file of that tag.
  void replace_asked(const std::string& name, std::uint64_t tag, Instant now);
  // `index`: of the newest entry in the ledger from which the list was made. False: the list is older than one seen
  // before, and adds nothing.
  bool seen(const wire::JobsReply& jobs, std::uint64_t index, Instant now);
  std::uint64_t index() const { return index_; }
  void agent_died(bool host_too);

 private:
  // A job whose submit lost its answer becomes known this late at most.
  static constexpr Duration kUnknownFor = 60s;
  static void apply(KnownJob& job, const wire::ActionRequest& action, Instant now);

  struct Replace {
    std::string name;
    std::uint64_t tag = 0;
    Instant at{};
  };
  std::vector<std::pair<wire::ActionRequest, Instant>> lately_;
  std::vector<Replace> replaced_lately_;
  std::map<std::uint64_t, JobFile> files_;
  std::map<JobId, KnownJob> jobs_;
  std::uint64_t index_ = 0;
  std::optional<Instant> drained_;  // when last
};

std::uint64_t tag_of(const std::map<std::string, std::string>& labels);  // 0: none
bool is_final(const std::string& state);
inline constexpr const char* kTagLabel = "sim";

}  // namespace dtrain::sim
