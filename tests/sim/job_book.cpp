#include "tests/sim/job_book.h"

namespace dtrain::sim {

const JobFile& JobBook::add_file(job::JobSpec spec, std::uint64_t tag) {
  JobFile& file = files_[tag];
  file.tag = tag;
  file.encoded = wire::encode(spec);
  file.spec = std::move(spec);
  return file;
}

const JobFile* JobBook::file(std::uint64_t tag) const {
  const auto it = files_.find(tag);
  return it == files_.end() ? nullptr : &it->second;
}

KnownJob& JobBook::know(JobId id, std::uint64_t tag, const std::string& name, Instant now) {
  const auto [it, added] = jobs_.try_emplace(id);
  KnownJob& job = it->second;
  if (added) {
    job.id = id;
    job.tag = tag;
    job.known_since = now;
    job.may_move = drained_ && now - *drained_ <= kUnknownFor;
  }
  if (!name.empty() && job.name.empty()) {
    job.name = name;
    // Its submit was never answered: what was asked of its name since may have met it.
    for (const auto& [action, when] : lately_)
      if (action.job == name) apply(job, action, when);
    for (const Replace& by : replaced_lately_)
      if (by.name == name && by.tag != tag && now - by.at <= kUnknownFor) job.removal_asked = true;
  }
  return job;
}

void JobBook::host_drained(Instant now) {
  drained_ = now;
  for (auto& [id, job] : jobs_) job.may_move = true;
}

const KnownJob* JobBook::find(JobId id) const {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

KnownJob* JobBook::find(JobId id) {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

const job::JobSpec* JobBook::spec_of(JobId id) const {
  const KnownJob* job = find(id);
  const JobFile* of = job == nullptr ? nullptr : file(job->tag);
  return of == nullptr ? nullptr : &of->spec;
}

void JobBook::asked(const wire::ActionRequest& action, Instant now) {
  std::erase_if(lately_, [&](const auto& entry) { return now - entry.second > kUnknownFor; });
  lately_.emplace_back(action, now);
  for (auto& [id, job] : jobs_)
    if (!job.gone && job.name == action.job) apply(job, action, now);
}

void JobBook::apply(KnownJob& job, const wire::ActionRequest& action, Instant now) {
  const std::uint32_t before = job.steered;
  switch (action.action) {
    case wire::Action::cancel: job.cancel_asked = true; break;
    case wire::Action::suspend:
      job.suspend_asked = true;
      ++job.steered;
      break;
    case wire::Action::resume: ++job.steered; break;
    case wire::Action::scale: {
      ++job.steered;
      auto& [fewest, when] = job.shrunk.try_emplace(action.role, action.replicas, now).first->second;
      if (action.replicas <= fewest) {
        fewest = action.replicas;
        when = now;
      }
      break;
    }
    case wire::Action::restart:
      ++job.steered;
      if (action.task.empty()) job.restarted = now;
      else job.tasks_restarted[action.task] = now;
      if (action.from_scratch) job.scratch_asked = true;
      break;
    case wire::Action::remove: job.removal_asked = true; break;
    case wire::Action::rerun:
      ++job.steered;
      job.restarted = now;
      break;
  }
  if (job.steered != before) job.steered_at = now;
}

void JobBook::replace_asked(const std::string& name, std::uint64_t tag, Instant now) {
  std::erase_if(replaced_lately_, [&](const Replace& by) { return now - by.at > kUnknownFor; });
  replaced_lately_.push_back({name, tag, now});
  for (auto& [id, job] : jobs_)
    if (job.name == name) job.removal_asked = true;
}

bool JobBook::seen(const wire::JobsReply& jobs, std::uint64_t index, Instant now) {
  if (index < index_) return false;
  index_ = index;
  for (auto& [id, job] : jobs_) {
    bool listed = false;
    for (const auto& view : jobs.jobs) listed = listed || view.id == id;
    if (!listed && !job.state.empty()) job.gone = true;
  }
  for (const auto& view : jobs.jobs) {
    KnownJob& job = know(view.id, tag_of(view.labels), view.name, now);
    if (job.state != view.state) {
      job.state = view.state;
      job.state_since = now;
    }
    job.restarts = view.restarts;
  }
  return true;
}

void JobBook::agent_died(bool host_too) {
  for (auto& [id, job] : jobs_) {
    if (job.gone) continue;
    ++job.crashes;
    if (host_too) ++job.reboots;
  }
}

std::uint64_t tag_of(const std::map<std::string, std::string>& labels) {
  const auto it = labels.find(kTagLabel);
  return it == labels.end() ? 0 : std::stoull(it->second);
}

bool is_final(const std::string& state) { return state == "Succeeded" || state == "Failed" || state == "Cancelled"; }

}  // namespace dtrain::sim
