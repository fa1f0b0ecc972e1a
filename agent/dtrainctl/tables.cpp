#include "agent/dtrainctl/tables.h"

#include <algorithm>

#include "agent/dtrainctl/escapes.h"
#include "agent/dtrainctl/words.h"
#include "common/job/job_yaml.h"
#include "common/job/quantity.h"
#include "common/wire/codec.h"

namespace dtrain::ctl {
namespace {

std::string roles_text(const wire::JobView& job) {
  std::string out;
  for (const auto& [role, counts] : job.roles) {
    if (!out.empty()) out += " ";
    out += role + " " + std::to_string(counts.ready + counts.succeeded) + "/" + std::to_string(counts.desired);
  }
  return out;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

std::string labels_text(const std::map<std::string, std::string>& labels) {
  std::string out;
  for (const auto& [key, value] : labels) out += (out.empty() ? "" : ",") + key + "=" + value;
  return out;
}

std::string cpus_pair(const wire::CpusView& cpus) { return job::format_cpus(cpus.free_millis) + "/" + job::format_cpus(cpus.total_millis); }

// "Key:          value"; nothing if there is no value.
std::string field(const std::string& key, const std::string& value) {
  static constexpr std::size_t kKeyWidth = 14;
  if (value.empty()) return "";
  return key + ":" + std::string(key.size() + 1 < kKeyWidth ? kKeyWidth - key.size() - 1 : 1, ' ') + printable(value) + "\n";
}

std::string indented(const std::string& text, const std::string& by) {
  std::string out;
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    out += by + text.substr(start, end - start) + "\n";
    start = end + 1;
  }
  return out;
}

// Quoted for a shell, so that it can be pasted.
std::string quoted(const std::string& word) {
  static constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Layout inside(const Layout& layout, std::size_t indent) {
  Layout inner = layout;
  if (inner.columns != 0) inner.columns = inner.columns > indent ? inner.columns - indent : 1;
  return inner;
}

// Tasks that were ended together with a job that succeeded count as successful, whatever signal that took.
std::string end_text(const wire::TaskView& task) {
  const bool by_itself = !task.exit || task.exit->code == 0;
  return task.state == "Succeeded" && !by_itself ? "with its job" : exit_text(task.exit);
}

// As RANK counts: "4-7".
std::string ranks_text(const std::optional<wire::RanksView>& ranks) {
  if (!ranks || ranks->count == 0) return "";
  const std::string first = std::to_string(ranks->first);
  return ranks->count == 1 ? first : first + "-" + std::to_string(ranks->first + ranks->count - 1);
}

// Of its ranks in order, as far as they are known.
std::string pids_text(const wire::TaskView& task) {
  if (task.pids.size() < 2) return task.pid != 0 ? std::to_string(task.pid) : "";
  std::string out;
  for (const std::int32_t pid : task.pids) out += (out.empty() ? "" : ",") + (pid != 0 ? std::to_string(pid) : "-");
  return out;
}

std::string fault_text(const wire::FaultView& fault) {
  const std::string cause = fault.error.empty() ? fault.cause : fault.error + " (" + fault.cause + ")";
  std::string out =
      field("First fault", text_of_rank(fault.task, fault.rank) + " on " + fault.node + " at " + fault.time + ": " + cause +
                               " (generation " + std::to_string(fault.generation) + ", attempt " + std::to_string(fault.attempt) + ")");
  std::size_t start = 0;
  const std::string& tail = fault.stack.empty() ? fault.stderr_tail : fault.stack;
  while (start < tail.size()) {
    const std::size_t end = std::min(tail.find('\n', start), tail.size());
    out += "  | " + printable(EscapeFilter().pass(std::string_view(tail).substr(start, end - start))) + "\n";
    start = end + 1;
  }
  return out;
}

}  // namespace

std::string status_of(const wire::TaskView& task) {
  if (task.state != "Running" || task.reason.empty()) return task.status;
  return task.reason + (task.status.empty() ? "" : "; " + task.status);
}

std::string ready_text(const wire::JobView& job) {
  std::uint64_t ready = 0, desired = 0;
  for (const auto& [role, counts] : job.roles) {
    ready += counts.ready + counts.succeeded;
    desired += counts.desired;
  }
  return std::to_string(ready) + "/" + std::to_string(desired);
}

std::string jobs_table(const std::vector<wire::JobView>& jobs, const Layout& layout) {
  Table table({{"NAME"},
               {"STATE", 0, false, false, true},
               {"FRAMEWORK", 4},
               {"READY", 1, false, true},
               {"RESTARTS", 3, false, true},
               {"GEN", 5, false, true},
               {"AGE", 2, false, true},
               {"ROLES", 6, true, false, false, true},
               {"USER", 7, false, false, false, true},
               {"LABELS", 8, true, false, false, true},
               {"REASON", 9, true}});
  for (const wire::JobView& job : jobs)
    table.add({job.name, job.state, job.framework, ready_text(job), std::to_string(job.restarts), std::to_string(job.generation),
               age_text(job.age_s), roles_text(job), job.user, labels_text(job.labels), job.reason});
  return table.render(layout);
}

std::string tasks_table(const std::vector<wire::TaskView>& tasks, const Layout& layout) {
  const bool ranks = std::ranges::any_of(tasks, [](const wire::TaskView& task) { return task.ranks.has_value(); });
  const bool pids = std::ranges::any_of(tasks, [](const wire::TaskView& task) { return task.pids.size() > 1; });
  std::vector<Column> columns{{"TASK"},
                              {"STATE", 0, false, false, true},
                              {"NODE", 2},
                              {"PID", 3, pids, true},
                              {"ADDRESS", 6},
                              {"ATTEMPT", 4, false, true},
                              {"EXIT", 1, true},
                              {"GPUS", 7, true, false, false, true},
                              {"STARTED", 8, false, false, false, true},
                              {"REASON", 9, true, false, false, true},
                              {"STATUS", 10, true}};
  constexpr std::ptrdiff_t kRanksAt = 3;  // behind the host
  if (ranks) columns.insert(columns.begin() + kRanksAt, {"RANKS", 5, false, true});
  Table table(std::move(columns));
  for (const wire::TaskView& task : tasks) {
    std::vector<std::string> cells{task.task,
                                   task.state,
                                   task.node,
                                   pids_text(task),
                                   task.address,
                                   std::to_string(task.attempt),
                                   end_text(task),
                                   joined(task.gpus, ","),
                                   task.started_at.value_or(""),
                                   task.reason,
                                   status_of(task)};
    if (ranks) cells.insert(cells.begin() + kRanksAt, ranks_text(task.ranks));
    table.add(std::move(cells));
  }
  return table.render(layout);
}

std::string left_text(const wire::DrainedJobView& job) {
  return job.job + " (" + std::to_string(job.tasks) + (job.tasks == 1 ? " task" : " tasks") + "): " + job.why;
}

std::string nodes_table(const std::vector<wire::NodeView>& nodes, const Layout& layout) {
  Table table({{"NAME"},
               {"STATE", 0, false, false, true},
               {"ROLE", 3},
               {"ADDRESS", 4},
               {"GPUS", 1, false, true},
               {"CPUS", 2, false, true},
               {"MEMORY", 2, false, true},
               {"SCHEDULABLE", 5, true},
               {"INCARNATION", 6, false, true, false, true},
               {"ID", 7, false, false, false, true},
               {"LABELS", 8, true, false, false, true},
               {"VERSION", 9, false, false, false, true},
               {"KEY", 10, false, false, false, true}});
  for (const wire::NodeView& node : nodes)
    table.add({node.name, node.state, node.role, node.address, std::to_string(node.gpus.free) + "/" + std::to_string(node.gpus.total),
               cpus_pair(node.cpus), bytes_text(node.memory.free_bytes) + "/" + bytes_text(node.memory.total_bytes),
               node.drained          ? "drained"
               : !node.unfit.empty() ? "no: " + node.unfit
               : node.schedulable    ? "yes"
                                     : "no",
               std::to_string(node.incarnation), node.id, labels_text(node.labels), node.version, node.key_print});
  return table.render(layout);
}

// "job (2 tasks): why", each on a line.
std::string drain_text(const wire::DrainView& drain) {
  std::string since = drain.since + (drain.by.empty() ? "" : " by " + drain.by) + (drain.reason.empty() ? "" : ": " + drain.reason);
  std::string out = field("Drained", since);
  if (drain.deadline_s) out += field("Deadline", *drain.deadline_s > 0 ? "in " + std::to_string(*drain.deadline_s) + "s" : "has passed");
  out += field("Tasks left", std::to_string(drain.tasks));
  for (const wire::DrainedJobView& job : drain.jobs) out += "  " + printable(left_text(job)) + "\n";
  return out;
}

std::string node_text(const wire::NodeView& node, const Layout& layout) {
  std::string out = field("Name", node.name) + field("Id", node.id) + field("Address", node.address) + field("State", node.state) +
                    field("Role", node.role) + field("Incarnation", std::to_string(node.incarnation)) +
                    field("Schedulable", node.schedulable     ? "yes"
                                         : node.unfit.empty() ? "no"
                                                              : "no: " + node.unfit) +
                    (node.drained ? drain_text(*node.drained) : "") + field("CPUs", cpus_pair(node.cpus) + " free") +
                    field("Memory", bytes_text(node.memory.free_bytes) + " of " + bytes_text(node.memory.total_bytes) + " free") +
                    field("GPUs", std::to_string(node.gpus.free) + "/" + std::to_string(node.gpus.total) + " free") +
                    field("Labels", labels_text(node.labels)) + field("Task address", node.task_address) + field("Version", node.version) +
                    field("Boot", node.boot_id) + field("Life", node.life != 0 ? std::to_string(node.life) : "") +
                    field("Key", node.key_print);
  if (node.gpus.devices.empty()) return out;
  Table table({{"INDEX", 0, false, true},
               {"PCI"},
               {"VENDOR", 3},
               {"MODEL", 1, true},
               {"MEMORY", 2, false, true},
               {"NUMA", 4, false, true},
               {"LINKS", 6, false, true},
               {"NICS", 7, true},
               {"HEALTHY", 0, true},
               {"UUID", 5, false, false, false, true}});
  for (const wire::GpuView& gpu : node.gpus.devices)
    table.add({std::to_string(gpu.index), gpu.pci, gpu.vendor, gpu.model + (gpu.pretended ? " (pretended)" : ""),
               bytes_text(gpu.memory_bytes), gpu.numa < 0 ? "" : std::to_string(gpu.numa), gpu.group < 0 ? "" : std::to_string(gpu.group),
               joined(gpu.nics, ","),
               gpu.healthy          ? "yes"
               : gpu.reason.empty() ? "no"
                                    : "no: " + gpu.reason,
               gpu.uuid});
  return out + indented(table.render(inside(layout, 2)), "  ");
}

std::string topology_text(const wire::NodeView& node) {
  std::string out;
  std::size_t start = 0;
  while (start < node.topology.size()) {
    const std::size_t end = std::min(node.topology.find('\n', start), node.topology.size());
    out += printable(std::string_view(node.topology).substr(start, end - start)) + "\n";
    start = end + 1;
  }
  return out.empty() ? node.name + " has not told its topology\n" : out;
}

std::string checkpoints_table(const std::vector<wire::CheckpointView>& checkpoints, const Layout& layout) {
  Table table({{"STEP", 0, false, true},
               {"STATE", 0, false, false, true},
               {"GEN", 3, false, true},
               {"SIZE", 2, false, true},
               {"TIME", 4},
               {"PATH", 1, true},
               {"DIGEST", 6, false, false, false, true},
               {"DEFECT", 5, true}});
  for (const wire::CheckpointView& c : checkpoints)
    table.add({std::to_string(c.step), c.state, std::to_string(c.generation), bytes_text(c.bytes), c.time, c.path, c.digest, c.defect});
  return table.render(layout);
}

// Nothing if nothing was dropped, or if the agent is too old to report it.
std::string drops_text(const wire::MembershipView& membership) {
  std::uint64_t sum = 0;
  std::string reasons;
  for (const auto& [reason, count] : membership.drops) {
    if (count == 0) continue;
    sum += count;
    reasons += (reasons.empty() ? "" : ", ") + std::to_string(count) + " " + reason;
  }
  return sum == 0 ? "" : field("Dropped", std::to_string(sum) + " messages of other nodes: " + reasons);
}

std::string status_text(const wire::StatusView& status) {
  std::string jobs;
  for (const auto& [state, count] : status.jobs) jobs += (jobs.empty() ? "" : ", ") + std::to_string(count) + " " + state;
  const auto& n = status.nodes;
  std::string nodes = std::to_string(n.alive) + " alive";
  if (n.suspect != 0) nodes += ", " + std::to_string(n.suspect) + " suspect";
  if (n.down != 0) nodes += ", " + std::to_string(n.down) + " down";
  if (n.dead != 0) nodes += ", " + std::to_string(n.dead) + " dead";
  if (n.left != 0) nodes += ", " + std::to_string(n.left) + " left";
  std::string drained;
  for (const auto& [node, reason] : status.drained)
    drained += (drained.empty() ? "" : ", ") + node + (reason.empty() ? "" : " (" + reason + ")");
  std::string unfit;
  for (const auto& [node, reason] : status.unfit) unfit += (unfit.empty() ? "" : ", ") + node + " (" + reason + ")";
  if (!status.waiting_for.empty())
    return field("Cluster", "none yet (" + status.cluster.name + ")") + field("Waiting for", status.waiting_for) +
           drops_text(status.membership);
  if (!status.ledger) jobs = status.coordinator ? "ask " + status.coordinator->node : "not known here";
  return field("Cluster", status.cluster.name + " (" + status.cluster.id + ")") +
         field("Coordinator",
               status.coordinator ? status.coordinator->node + " (epoch " + std::to_string(status.coordinator->epoch) + ")" : "none") +
         field("Quorum", std::string(status.quorum.healthy ? "healthy" : "lost") + ", voters " + joined(status.quorum.voters, " ")) +
         (status.quorum.next.empty() ? "" : field("Next", status.quorum.next)) + field("Nodes", nodes) +
         (drained.empty() ? "" : field("Drained", drained)) + (unfit.empty() ? "" : field("Unfit", unfit)) +
         field("GPUs", std::to_string(status.gpus.free) + "/" + std::to_string(status.gpus.total) + " free") +
         field("Jobs", jobs.empty() ? "none" : jobs) + drops_text(status.membership);
}

std::string recovery_warning(const wire::RecoveryView& view) {
  std::string out = "recover-quorum on " + printable(view.node) + ": its log, up to entry " + std::to_string(view.index) + " of term " +
                    std::to_string(view.term) + ", is the cluster's from now on (history " + std::to_string(view.history + 1) +
                    ").\n"
                    "- What only the voters had that are not up (" +
                    printable(joined(view.lost, " ")) +
                    ") is lost.\n"
                    "- If a majority of the voters is alive somewhere else, there will be two clusters.\n"
                    "- The other members drop their logs and follow this one; tasks that it does not know end.\n"
                    "- Whoever does not answer is taken for lost: its tasks are begun elsewhere where that is safe.\n"
                    "- Lost voters may come back, in this order: wait until the nodes that are up have followed (event "
                    "council.followed on each), then start one agent after the other, each when the one before has followed; or with empty "
                    "data directories. A majority of the old voters, started before that, elects a coordinator of its own.\n";
  for (const wire::LogReachView& other : view.others) {
    out += "  " + printable(other.node + " (" + other.role + ", " + other.state + "): ");
    out += other.index == 0 ? "how far its log reaches is not known"
                            : "its log reaches to entry " + std::to_string(other.index) + " of term " + std::to_string(other.term) +
                                  " of history " + std::to_string(other.history);
    out += "\n";
  }
  return out;
}

std::string task_specs_text(const std::vector<wire::TaskSpecView>& tasks) {
  std::string out;
  for (const wire::TaskSpecView& task : tasks) {
    if (!out.empty()) out += "\n";
    std::string head = task.task;
    if (!task.node.empty()) head += " on " + task.node;
    if (!task.address.empty()) head += " at " + task.address;
    out += printable(head) + "\n";
    std::string command;
    for (const std::string& word : task.argv) command += (command.empty() ? "" : " ") + quoted(word);
    out += "  " + field("command", command);
    if (!task.work_dir.empty()) out += "  " + field("directory", task.work_dir);
    if (!task.gpus.empty()) out += "  " + field("GPUs", joined(task.gpus, " "));
    out += task.ranks ? "  " + field("ranks", ranks_text(task.ranks)) : "";
    for (const auto& [key, value] : task.env) out += "  " + printable(key) + "=" + printable(value) + "\n";
  }
  return out;
}

std::string findings_text(const std::vector<wire::Finding>& findings, const Layout& layout) {
  // A level, and the state that is shown in its colour.
  static constexpr std::pair<const char*, const char*> kLevels[] = {{"bad", "Failed"}, {"warn", "Restarting"}, {"ok", "Running"}};
  static constexpr std::size_t kLevelWidth = 6;
  std::size_t check_width = 0, node_width = 0;
  for (const wire::Finding& f : findings) {
    check_width = std::max(check_width, text_width(printable(f.check)));
    node_width = std::max(node_width, text_width(printable(f.node)));
  }
  const auto padded = [](const std::string& text, std::size_t width) {
    return text + std::string(width > text_width(text) ? width - text_width(text) : 0, ' ') + "  ";
  };
  std::string out, counts;
  for (const auto& [level, state] : kLevels) {
    std::size_t count = 0;
    for (const wire::Finding& f : findings) {
      if (f.level != level) continue;
      ++count;
      out += colored_state(level, state, layout.color) + std::string(kLevelWidth - std::string_view(level).size(), ' ') +
             padded(printable(f.check), check_width) + padded(printable(f.node), node_width) + printable(f.finding) + "\n";
      if (!f.cure.empty()) out += std::string(kLevelWidth, ' ') + "cure: " + printable(f.cure) + "\n";
    }
    counts += (counts.empty() ? "" : ", ") + std::to_string(count) + " " + level;
  }
  return out + counts + "\n";
}

namespace {

// The details begin with the event's object, which is printed in front of them already.
std::string without_object(const wire::EventView& event) {
  for (const char* key : {"job=", "task=", "node="})
    if (const std::string known = key + event.object; event.message == known || event.message.starts_with(known + " "))
      return event.message.substr(std::min(known.size() + 1, event.message.size()));
  return event.message;
}

}  // namespace

std::string event_line(const wire::EventView& event) {
  std::string line = event.time + " " + (event.seq != 0 ? std::to_string(event.seq) : "-") + " " + event.type;
  for (const std::string& part : {event.object, event.reason, without_object(event)})
    if (!part.empty()) line += " " + part;
  return printable(line) + "\n";
}

static std::string progress_text(const wire::ProgressView& p) {
  if (p.since.empty() && p.why.empty()) return "";
  return (p.value ? "yes" : "no") + (p.since.empty() ? "" : ", since " + p.since) + (p.why.empty() ? "" : ": " + p.why);
}

std::string job_summary(const wire::JobDescription& d, const Layout& layout) {
  const wire::JobView& job = d.job;
  return field("Name", job.name) + field("State", job.state) + field("Reason", job.reason) + field("Waiting for", d.waiting_for) +
         field("Framework", job.framework) + field("Ready", roles_text(job)) + field("Generation", std::to_string(job.generation)) +
         field("Restarts", std::to_string(job.restarts)) + field("Progressing", progress_text(job.progressing)) +
         field("Age", age_text(job.age_s)) + field("Duration", age_text(job.duration_s)) +
         (d.restored ? field("Restored", "step " + std::to_string(d.restored->step) + " from " + d.restored->path) : "") +
         (d.first_fault ? fault_text(*d.first_fault) : "") +
         (d.tasks.empty() ? "" : "Tasks:\n" + indented(tasks_table(d.tasks, inside(layout, 2)), "  "));
}

static constexpr std::size_t kDigestDigits = 12;  // as in events

std::string job_text(const wire::JobDescription& d, const Layout& layout) {
  std::string out = field("Id", std::to_string(d.job.id)) + field("User", d.job.user) + field("Labels", labels_text(d.job.labels)) +
                    job_summary(d, layout);
  if (!d.conditions.empty()) {
    Table table({{"STATE", 0, false, false, true}, {"STATUS"}, {"REACHED", 1}, {"AGO", 3, false, true}, {"REASON", 2, true}});
    for (const wire::ConditionView& c : d.conditions) table.add({c.type, c.status ? "now" : "passed", c.time, age_text(c.age_s), c.reason});
    out += "Conditions:\n" + indented(table.render(inside(layout, 2)), "  ");
  }
  if (auto spec = wire::decode<job::JobSpec>(d.spec)) {
    out += layout.wide ? "Job file:\n" + indented(job::to_yaml(*spec), "  ")
                       : "Job file (-o wide: with what was not set):\n" + indented(job::to_short_yaml(*spec), "  ");
    // A directory on the submitter's host, whose path is not known here: for whoever uses the file.
    if (!spec->package_digest.empty()) out += "  # and a package, digest " + spec->package_digest.substr(0, kDigestDigits) + "\n";
  }
  if (!d.events.empty()) {
    out += "Events:\n";
    for (const wire::EventView& event : d.events) out += "  " + event_line(event);
  }
  return out;
}

}  // namespace dtrain::ctl
