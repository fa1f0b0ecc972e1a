#include "common/node/staging.h"

#include <algorithm>

namespace dtrain::node {

// ---------------------------------------------------------------- for a step

void StagingStep::pass(const AssignmentId& id) { staging_.passed(*this, id); }

void StagingStep::refuse(const AssignmentId& id, Error error, std::string host_refused) {
  staging_.refused(id, std::move(error), std::move(host_refused));
}

void StagingStep::wait(const AssignmentId& id, std::string reason) { staging_.reasons_.emplace_back(id, std::move(reason)); }

void StagingStep::let_begin(const AssignmentId& id) {
  const auto held = staging_.held_.find(id);
  if (held == staging_.held_.end() || staging_.is_held(id)) return;
  c_.emit(StartAttempt{id, held->second});
  staging_.held_.erase(held);
}

void StagingStep::let_go(const AssignmentId& id) {
  if (const auto kept = staging_.kept_.find(id); kept != staging_.kept_.end()) {
    kept->second.erase(name_);
    if (!kept->second.empty()) return;
    staging_.kept_.erase(kept);
  }
  staging_.over_.push_back(id);
}

std::uint64_t StagingStep::put_note(const std::string& key, std::string note) {
  Persist put;
  put.ticket = c_.tickets.give(this);
  put.put_task_records[name_ + "/" + key] = std::move(note);
  const std::uint64_t ticket = put.ticket;
  c_.emit(std::move(put));
  return ticket;
}

std::uint64_t StagingStep::erase_note(const std::string& key) {
  Persist erase;
  erase.ticket = c_.tickets.give(this);
  erase.erase_task_records.push_back(name_ + "/" + key);
  const std::uint64_t ticket = erase.ticket;
  c_.emit(std::move(erase));
  return ticket;
}

// ---------------------------------------------------------------- the list

void Staging::start(const std::map<std::string, std::string>& records) {
  for (StagingStep* step : steps_)
    for (const auto& [name, note] : records)
      if (name.starts_with(step->name() + "/")) step->restore(name.substr(step->name().size() + 1), note);
}

void Staging::stage(const task::TaskOrder& o) {
  const job::JobSpec& spec = o.context->spec;
  const std::string image = c_.runs_images() ? spec.roles.at(o.id.task.role).image : "";
  std::vector<std::string> make_dirs = spec.make_dirs;
  // The task sees of the host only what is there when it begins.
  if (!image.empty() && spec.checkpoint) make_dirs.push_back(spec.checkpoint->dir);
  places_[o.id] = {{{o.id, spec.name, o.context->user, spec.package_digest, job::work_dir_of(spec, o.id.task.role), spec.require_paths,
                     o.address.host, o.address.port, true, std::move(make_dirs), image},
                    o.gpus},
                   0};
  go_on(o.id);
}

// A step may pass or refuse at once, which changes places_.
void Staging::go_on(const AssignmentId& id) {
  const Place& place = places_.at(id);
  if (place.step == steps_.size()) return c_.emit(Stage(place.task.stage));
  StagingStep& step = *steps_[place.step];
  const StagedTask task = place.task;
  step.begin(task);
}

void Staging::passed(const StagingStep& step, const AssignmentId& id) {
  const auto place = places_.find(id);
  if (place == places_.end() || place->second.step == steps_.size() || steps_[place->second.step] != &step) return;
  ++place->second.step;
  go_on(id);
}

void Staging::refused(const AssignmentId& id, Error error, std::string host_refused) {
  if (places_.erase(id) != 0) c_.later.push_back(Staged{id, fail(std::move(error)), false, std::move(host_refused)});
}

bool Staging::staged(const Staged& e, bool wanted) {
  const auto place = places_.find(e.id);
  if (place == places_.end()) return false;
  for (std::size_t i = 0; wanted && !e.work_dir && i < steps_.size(); ++i) {
    if (!steps_[i]->provides(place->second.task, e)) continue;
    place->second.step = i;
    return true;
  }
  places_.erase(place);
  return false;
}

std::vector<AssignmentId> Staging::in_steps(JobId job) const {
  std::vector<AssignmentId> ids;
  for (const auto& [id, place] : places_)
    if (id.job == job && place.step < steps_.size()) ids.push_back(id);
  return ids;
}

void Staging::give_up(const AssignmentId& id) {
  const auto place = places_.find(id);
  if (place == places_.end() || place->second.step == steps_.size()) return;
  steps_[place->second.step]->give_up(id);
  places_.erase(place);
}

void Staging::launching(const task::TaskOrder& order) {
  for (StagingStep* step : steps_) step->launching(order);
}

bool Staging::is_held(const AssignmentId& id) {
  bool held = false;
  for (StagingStep* step : steps_) held = step->holds(id) || held;  // each of them is to know
  return held;
}

void Staging::begin_attempt(const AssignmentId& id, AttemptNumber attempt) {
  if (is_held(id)) held_[id] = attempt;
  else c_.emit(StartAttempt{id, attempt});
}

void Staging::end_shim(const AssignmentId& id) {
  held_.erase(id);
  c_.emit(EndShim{id});
}

void Staging::ended(const task::TaskOrder& order, Instant since) {
  std::set<std::string> keep;
  for (StagingStep* step : steps_)
    if (step->ended(order, since)) keep.insert(step->name());
  if (keep.empty()) over_.push_back(order.id);
  else kept_[order.id] = std::move(keep);
}

bool Staging::settled() const {
  return std::ranges::all_of(steps_, [](const StagingStep* step) { return step->settled(); });
}

}  // namespace dtrain::node
