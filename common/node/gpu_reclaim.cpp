#include "common/node/gpu_reclaim.h"

#include <algorithm>

#include "common/node/cluster_members.h"

namespace dtrain::node {

// ---------------------------------------------------------------- notes

void GpuReclaim::restore(const std::string& key, const std::string& bytes) {
  if (c_.options.broken_rule == "gpu-notes-are-read") return;
  auto note = wire::decode<Note>(bytes);
  if (!note || note->boot_id != c_.facts.boot_id) {
    erase_note(key);
    return;
  }
  Use use;
  use.note = std::move(*note);
  use.noted = use.begun = true;
  if (!use.note.held.empty()) use.ended = use.next = c_.now.boot;
  const AssignmentId id = use.note.id;
  uses_.emplace(id, std::move(use));
}

GpuReclaim::Use& GpuReclaim::use_of(const task::TaskOrder& order, Instant since) {
  const auto [it, added] = uses_.try_emplace(order.id);
  Note& note = it->second.note;
  if (added) {
    note.id = order.id;
    note.task = order.context->spec.name + "/" + order.id.task.text();
    note.user = order.context->user;
    note.since = since;
    note.boot_id = c_.facts.boot_id;
    note.gpus = order.gpus;
  }
  return it->second;
}

void GpuReclaim::launching(const task::TaskOrder& order) {
  if (order.gpus.empty()) return;
  Use& use = use_of(order, c_.now.boot);
  use.ended.reset();
  if (!use.noted) write_note(use);
}

void GpuReclaim::write_note(Use& use) {
  use.ticket = put_note(use.note.id.text(), wire::encode(use.note));
  use.noted = true;
}

void GpuReclaim::persisted(std::uint64_t ticket) {
  const auto it = std::ranges::find_if(uses_, [&](const auto& entry) { return entry.second.ticket == ticket; });
  if (it == uses_.end()) return;
  it->second.ticket = 0;
  if (!it->second.note.held.empty()) let_go(it->first);
  let_begin(it->first);
}

bool GpuReclaim::holds(const AssignmentId& id) {
  const auto it = uses_.find(id);
  if (it == uses_.end()) return false;
  it->second.begun = true;
  return it->second.ticket != 0;
}

// ---------------------------------------------------------------- looks

bool GpuReclaim::ended(const task::TaskOrder& order, Instant since) {
  Use& use = use_of(order, since);
  if (c_.options.broken_rule == "gpus-reclaimed") return forget(uses_.find(order.id)), false;
  // An earlier life of the agent knew the holders already; whether the end was reported is not known.
  if (!use.note.held.empty()) return false;
  use.ended = use.next = c_.now.boot;
  return true;
}

void GpuReclaim::begin_others() {
  for (auto next = uses_.begin(); next != uses_.end();) {
    const auto it = next++;
    if (it->second.ended || c_.host->may_run(it->first)) continue;
    if (!it->second.begun) forget(it);
    else it->second.ended = it->second.next = c_.now.boot;
  }
}

void GpuReclaim::drive() {
  if (c_.current) begin_others();
  if (look_ != 0) return;
  FindGpuHolders look;
  for (const auto& [id, use] : uses_) {
    if (!use.ended || c_.now.boot < use.next) continue;
    looked_for_.insert(id);
    for (const task::OwnGpu& gpu : use.note.gpus)
      if (std::ranges::find(look.gpus, gpu) == look.gpus.end()) look.gpus.push_back(gpu);
  }
  if (looked_for_.empty()) return;
  look.token = look_ = c_.next_token();
  c_.emit(std::move(look));
}

Instant GpuReclaim::deadline() const {
  Instant earliest = kNever;
  if (look_ != 0) return earliest;
  for (const auto& [id, use] : uses_)
    if (use.ended) earliest = std::min(earliest, use.next);
  return earliest;
}

void GpuReclaim::found(const GpuHoldersFound& e) {
  if (look_ == 0 || e.token != look_) return;
  look_ = 0;
  for (const AssignmentId& id : std::exchange(looked_for_, {}))
    if (const auto it = uses_.find(id); it != uses_.end() && it->second.ended) judge(it, e.holders);
}

std::vector<GpuHolder> GpuReclaim::culprits(const Note& note, const std::vector<GpuHolder>& holders) const {
  std::vector<GpuHolder> found;
  for (const GpuHolder& holder : holders) {
    if (std::ranges::find(note.gpus, holder.pci, &task::OwnGpu::pci) == note.gpus.end()) continue;
    const bool as_task = holder.uid == note.user.uid && holder.began >= note.since;
    if (!holder.in_task && (holder.uid >= kFirstUserUid || as_task)) found.push_back(holder);
  }
  return found;
}

std::string GpuReclaim::describe(const Note& note, const std::vector<GpuHolder>& culprits) const {
  std::string text;
  for (std::size_t i = 0; i < std::min(culprits.size(), kHoldersNamed); ++i) {
    const GpuHolder& holder = culprits[i];
    const std::string whose = holder.uid == note.user.uid ? note.user.name : "uid " + std::to_string(holder.uid);
    text += (i == 0 ? "" : ", ") + std::string("process ") + std::to_string(holder.pid) + " (" + holder.program + " of " + whose +
            ") holds GPU " + holder.pci;
  }
  if (culprits.size() > kHoldersNamed) text += " and " + std::to_string(culprits.size() - kHoldersNamed) + " more";
  return text + " after the end of " + note.task;
}

void GpuReclaim::judge(Uses::iterator it, const Result<std::vector<GpuHolder>>& all) {
  Use& use = it->second;
  std::string& held = use.note.held;
  const bool patient = c_.now.boot < *use.ended + kReclaimPatience;
  use.next = c_.now.boot + (patient ? kReclaimLook : kHeldLook);
  if (!all && (patient || !held.empty())) return;
  if (!all) c_.log.write(LogLevel::warn, "gpu.holders-unknown", {{"task", it->first.text()}, {"error", all.error().text()}});
  const std::vector<GpuHolder> holders = all ? culprits(use.note, *all) : std::vector<GpuHolder>();
  if (holders.empty()) {
    if (held.empty() || use.ticket != 0) let_go(it->first);
    if (!held.empty()) c_.members->tell("gpu.released", "the GPUs of " + use.note.task + " are free");
    return forget(it);
  }
  const bool first = held.empty();
  if (first && patient) return;
  held = describe(use.note, holders);
  if (!first) return;
  c_.members->tell("gpu.held", held);
  write_note(use);  // once it is written the end may be reported, because a later life of the agent knows of the holders, too
}

void GpuReclaim::forget(Uses::iterator it) {
  if (it->second.noted) erase_note(it->first.text());
  uses_.erase(it);
}

void GpuReclaim::begin(const StagedTask& task) {
  const AssignmentId& own = task.stage.id;
  for (const auto& [id, use] : uses_) {
    if (!use.ended || id == own) continue;
    const bool shared = std::ranges::any_of(
        task.gpus, [&had = use.note.gpus](const task::OwnGpu& gpu) { return std::ranges::find(had, gpu) != had.end(); });
    if (!shared) continue;
    const std::string why = use.note.held.empty() ? "whether the GPUs of " + use.note.task + " are free is being looked at" : use.note.held;
    return refuse(own, {ErrorCode::unavailable, "could not stage " + own.task.text() + ": " + why, "end that process, or use other hosts"});
  }
  pass(own);
}

std::string GpuReclaim::unfit() const {
  for (const auto& [id, use] : uses_)
    if (!use.note.held.empty()) return use.note.held;
  return "";
}

bool GpuReclaim::settled() const {
  return std::ranges::none_of(uses_, [](const auto& entry) { return entry.second.ended && entry.second.note.held.empty(); });
}

}  // namespace dtrain::node
