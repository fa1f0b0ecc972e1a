#include "agent/dtrainctl/progress.h"

#include <algorithm>
#include <set>

#include "agent/dtrainctl/tables.h"
#include "agent/dtrainctl/words.h"

namespace dtrain::ctl {

bool is_final_state(std::string_view s) { return s == "Succeeded" || s == "Failed" || s == "Cancelled"; }

namespace {

// A task that failed in a job that goes on comes again: Failed is for what ended for good.
std::string shown_state(const wire::TaskView& task, const wire::JobView& job) {
  return task.state == "Failed" && !is_final_state(job.state) ? "Died" : task.state;
}

std::string restored_text(const wire::RestoredView& restored) {
  return "restored step " + std::to_string(restored.step) + " from " + restored.path;
}

}  // namespace

std::vector<std::string> progress_block(const wire::JobUpdate& update, const Layout& layout, const std::vector<std::string>& bars) {
  const wire::JobView& job = update.job;
  std::vector<std::string> lines;
  const std::string counts = "  ready " + ready_text(job) + "  generation " + std::to_string(job.generation) + "  restarts " +
                             std::to_string(job.restarts) + "  " + age_text(job.duration_s);
  const bool no_more = job.reason.empty() || job.reason == update.waiting_for;
  std::string head = job.name + "  " + job.state + counts + (no_more ? "" : "  " + job.reason);
  head = printable(head);
  if (layout.columns != 0) head = cut(head, layout.columns);
  if (const std::size_t at = job.name.size() + 2; head.compare(at, job.state.size(), job.state) == 0 && layout.color)
    head.replace(at, job.state.size(), colored_state(job.state, job.state, true));
  lines.push_back(std::move(head));
  const auto add = [&](const std::string& text) {
    lines.push_back(layout.columns != 0 ? cut(printable(text), layout.columns) : printable(text));
  };
  if (update.restored) add(restored_text(*update.restored));
  if (!update.waiting_for.empty()) add("waits: " + update.waiting_for);
  for (std::size_t i = 0; i < std::min(bars.size(), kBlockTasks); ++i) add(bars[i]);

  // If there is no room for all, tasks that do not simply run come first.
  std::vector<const wire::TaskView*> tasks;
  for (const wire::TaskView& task : update.tasks) tasks.push_back(&task);
  std::size_t hidden = 0;
  if (tasks.size() > kBlockTasks) {
    std::stable_partition(tasks.begin(), tasks.end(), [](const wire::TaskView* t) { return t->state != "Running"; });
    hidden = tasks.size() - kBlockTasks;
    tasks.resize(kBlockTasks);
  }
  Table table({{"TASK"}, {"STATE", 0, false, false, true}, {"NODE", 2}, {"ATTEMPT", 1, false, true}, {"STATUS", 3, true}});
  for (const wire::TaskView* task : tasks)
    table.add({task->task, shown_state(*task, job), task->node, std::to_string(task->attempt),
               task->status.empty() ? task->reason : status_of(*task)});
  const std::string text = table.render(layout);
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = text.find('\n', start);
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  if (hidden != 0) lines.push_back("and " + std::to_string(hidden) + " more");
  return lines;
}

std::vector<std::string> PlainProgress::changes(const wire::JobUpdate& update) {
  const wire::JobView& job = update.job;
  std::vector<std::string> lines;
  if (job.state != state_ || job.generation != generation_) {
    lines.push_back("job " + job.name + ": " + job.state +
                    (job.generation != 0 ? " (generation " + std::to_string(job.generation) + ")" : "") +
                    (job.reason.empty() ? "" : ": " + job.reason));
    if (job.generation != generation_) {
      tasks_.clear();
      if (update.restored) lines.push_back("job " + job.name + ": " + restored_text(*update.restored));
    }
    state_ = job.state;
    generation_ = job.generation;
  }
  if (job.restarts != restarts_) {
    lines.push_back("job " + job.name + ": restarts " + std::to_string(job.restarts));
    restarts_ = job.restarts;
  }
  std::set<std::string> waits;  // of tasks that wait for the same, the first is enough
  for (const wire::TaskView& task : update.tasks) {
    Seen& seen = tasks_[task.task];
    const std::string state = shown_state(task, job);
    if (state != seen.state || task.attempt != seen.attempt) {
      std::string line = task.task + ": " + state;
      if (task.attempt > 1) line += " (attempt " + std::to_string(task.attempt) + ")";
      if (!task.reason.empty()) line += ": " + task.reason;
      lines.push_back(std::move(line));
    } else if (state == "Running" && task.reason != seen.reason) {
      lines.push_back(task.task + ": " + (task.reason.empty() ? "goes on" : task.reason));
    } else if (state == "Fetching" && !task.reason.empty() && task.reason != seen.reason && waits.insert(task.reason).second) {
      lines.push_back(task.task + ": " + task.reason);
    }
    if (task.status != seen.status && !task.status.empty()) lines.push_back(task.task + ": STATUS " + task.status);
    seen = {state, task.status, task.reason, task.attempt};
  }
  for (std::string& line : lines) line = printable(line);
  return lines;
}

void LiveScreen::erase() {
  if (drawn_ + typed_ != 0) out_ << "\r\033[" << drawn_ + typed_ << "A\033[J";
  else out_ << "\r\033[J";
  drawn_ = typed_ = 0;
}

void LiveScreen::paint() {
  for (const std::string& line : block_) out_ << line << "\n";
  drawn_ = block_.size();
  out_ << question_;
  out_.flush();
}

void LiveScreen::print_above(std::string_view text) {
  erase();
  out_ << text;
  paint();
}

void LiveScreen::draw(std::vector<std::string> block, std::string question) {
  erase();
  block_ = std::move(block);
  question_ = std::move(question);
  paint();
}

void LiveScreen::settle() {
  if (!question_.empty()) draw(std::move(block_));
  block_.clear();
  drawn_ = 0;
}

}  // namespace dtrain::ctl
