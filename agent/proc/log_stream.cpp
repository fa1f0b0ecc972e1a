#include "agent/proc/log_stream.h"

#include <algorithm>
#include <utility>

#include "agent/proc/assignment_dir.h"

namespace dtrain::proc {

namespace {

wire::LogChunk chunk_of(const TaskLog& log) {
  wire::LogChunk chunk;
  chunk.task = log.task().text();
  chunk.generation = log.generation();
  return chunk;
}

}  // namespace

Result<LogStream> LogStream::open(std::string tasks_dir, const node::OpenLog& effect) {
  auto query = wire::decode<wire::LogsRequest>(effect.query);
  if (!query) return fail(query.error());
  LogStream stream(std::move(tasks_dir), std::move(*query));
  stream.add_older(effect.sources);
  stream.update(effect.sources, effect.ended);
  return stream;
}

LogStream::LogStream(std::string tasks_dir, wire::LogsRequest query) : tasks_dir_(std::move(tasks_dir)), query_(std::move(query)) {}

void LogStream::add_sources(const std::vector<AssignmentId>& sources) {
  for (const AssignmentId& id : sources) {
    if (!sources_.insert(id).second) continue;
    auto task = std::find_if(tasks_.begin(), tasks_.end(), [&](const Task& t) { return t.log->task() == id.task; });
    if (task == tasks_.end()) {
      tasks_.emplace_back();
      task = std::prev(tasks_.end());
      task->log = std::make_unique<TaskLog>(tasks_dir_, id.task, query_);
    }
    task->log->add_source(id);
  }
}

// The oldest of many generations are not listed; files of them on this host are read all the same.
void LogStream::add_older(const std::vector<AssignmentId>& listed) {
  if (listed.empty()) return;
  const AssignmentId& first = *std::ranges::min_element(listed, {}, &AssignmentId::generation);
  if (first.generation <= 1) return;
  std::vector<AssignmentId> older = list_assignments(tasks_dir_);
  std::erase_if(older, [&](const AssignmentId& id) {
    return id.job != first.job || id.generation >= first.generation || (!query_.task.empty() && id.task.text() != query_.task);
  });
  add_sources(older);
}

void LogStream::update(const std::vector<AssignmentId>& sources, bool ended) {
  add_sources(sources);
  ended_ = ended_ || ended;
  if (ended_)
    for (Task& task : tasks_) task.log->end();
  touched_all();
}

void LogStream::touched(const AssignmentId& id) {
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    if (tasks_[i].log->task() != id.task) continue;
    if (!tasks_[i].finished) unlooked_.insert(i);
    return;
  }
}

void LogStream::touched_all() {
  for (std::size_t i = 0; i < tasks_.size(); ++i)
    if (!tasks_[i].finished) unlooked_.insert(i);
}

void LogStream::flush_all(Task& task) {
  while (!task.partial.empty()) flush(task, task.partial.begin()->first);
}

// What is kept of a source that has nothing unfinished is forgotten: a job may have a million ranks.
void LogStream::flush(Task& task, Source source) {
  PartialLine partial = std::move(task.partial[source]);
  task.partial.erase(source);
  kept_ -= partial.bytes.size();
  if (!partial.open && partial.bytes.empty()) return;  // for an open line: report that it does not continue
  wire::LogChunk chunk;
  chunk.task = task.log->task().text();
  chunk.generation = task.generation;
  chunk.attempt = task.attempt;
  chunk.rank = source.first;
  chunk.is_stderr = source.second == 1;
  chunk.time_ms = partial.time_ms;
  chunk.bytes = std::move(partial.bytes);
  out_.push_back(std::move(chunk));
}

void LogStream::announce_attempt(std::size_t index) {
  Task& task = tasks_[index];
  const AttemptNumber attempt = task.log->attempt();
  if (attempt == 0 || attempt == task.attempt) return;
  if (task.attempt != 0) {
    flush_all(task);
    wire::LogChunk note = chunk_of(*task.log);
    note.attempt = attempt;
    note.note = note.task + ": attempt " + std::to_string(attempt) + " begins";
    if (note.generation != task.generation) note.note += " (generation " + std::to_string(note.generation) + ")";
    out_.push_back(std::move(note));
  }
  task.attempt = attempt;
  task.generation = task.log->generation();
}

// One bounded look at a task whose next bytes are not known.
Status LogStream::look_at(std::size_t index) {
  Task& task = tasks_[index];
  const auto step = task.log->step();
  if (!step) return fail(step.error());
  if (const std::uint64_t lost = task.log->take_lost_files(); lost > 0) {
    wire::LogChunk note = chunk_of(*task.log);
    note.note = note.task + ": " + std::to_string(lost) + " log file(s) were rotated away before they could be sent";
    out_.push_back(std::move(note));
  }
  announce_attempt(index);
  switch (*step) {
    case TaskLog::Step::segment: ready_.emplace(task.log->segment().time_ms, index); break;
    case TaskLog::Step::busy: return {};
    case TaskLog::Step::idle: break;
    case TaskLog::Step::finished:
      task.finished = true;
      flush_all(task);
      break;
  }
  unlooked_.erase(index);
  return {};
}

// Keeps back what follows the last line end, after what was kept back before.
void LogStream::cut_at_line_end(Task& task, wire::LogChunk& chunk) {
  PartialLine& partial = task.partial[{chunk.rank, chunk.is_stderr ? 1 : 0}];
  kept_ -= partial.bytes.size();
  const std::size_t last = chunk.bytes.rfind('\n');
  std::string rest;
  if (last == std::string::npos) {
    if (partial.bytes.empty()) partial.time_ms = chunk.time_ms;
    rest = partial.bytes + chunk.bytes;
    chunk.bytes.clear();
  } else {
    rest = chunk.bytes.substr(last + 1);
    chunk.bytes.resize(last + 1);
    if (!partial.bytes.empty()) chunk.bytes.insert(0, partial.bytes);
    partial.time_ms = chunk.time_ms;
    partial.open = false;
  }
  partial.bytes = std::move(rest);
  // A progress bar: an epoch is too long to wait for the end of its line.
  partial.open = partial.open || (query_.follow && partial.bytes.find('\r') != std::string::npos);
  if (partial.open && !partial.bytes.empty()) {
    chunk.bytes += std::exchange(partial.bytes, {});
    chunk.open = true;
  }
  kept_ += partial.bytes.size();
}

// Makes a chunk of the bytes that are ready, with as many neighbouring segments as look the same to the reader.
Status LogStream::read_chunk(std::size_t index) {
  Task& task = tasks_[index];
  const LogSegment first = task.log->segment();
  wire::LogChunk chunk = chunk_of(*task.log);
  chunk.attempt = first.attempt;
  chunk.is_stderr = first.stream == task::LogStream::err;
  chunk.time_ms = first.time_ms;
  chunk.rank = first.rank;
  task.generation = chunk.generation;
  while (chunk.bytes.size() < kStreamChunkBytes) {
    if (Status read = task.log->read(kStreamChunkBytes - chunk.bytes.size(), chunk.bytes); !read) return fail(read.error());
    const auto step = task.log->step();
    if (!step) return fail(step.error());
    if (*step != TaskLog::Step::segment) break;
    const LogSegment& next = task.log->segment();
    if (next.attempt != first.attempt || next.stream != first.stream || next.rank != first.rank || next.time_ms != first.time_ms ||
        task.log->generation() != chunk.generation)
      break;
  }
  const Source source{chunk.rank, chunk.is_stderr ? 1 : 0};
  if (keeps_lines_whole(chunk)) cut_at_line_end(task, chunk);
  if (!chunk.bytes.empty()) out_.push_back(std::move(chunk));
  if (const auto partial = task.partial.find(source); partial != task.partial.end()) {
    const std::size_t size = partial->second.bytes.size();
    if (size >= kPartialLineBytes || kept_ > kPartialBytesOfStream) flush(task, source);
    else if (size == 0 && !partial->second.open) task.partial.erase(partial);
  }
  unlooked_.insert(index);
  return {};
}

Result<LogStream::Answer> LogStream::next() {
  Answer answer;
  if (out_.empty()) {
    if (!unlooked_.empty()) {
      if (Status looked = look_at(*unlooked_.begin()); !looked) return fail(looked.error());
    } else if (!ready_.empty()) {
      const std::size_t index = ready_.begin()->second;
      ready_.erase(ready_.begin());
      if (Status read = read_chunk(index); !read) return fail(read.error());
    } else {
      const bool finished = std::all_of(tasks_.begin(), tasks_.end(), [](const Task& t) { return t.finished; });
      // Tasks may join while the job goes on.
      answer.state = finished && (ended_ || !query_.follow || (!tasks_.empty() && !query_.task.empty())) ? State::finished : State::waiting;
      return answer;
    }
  }
  if (!out_.empty()) {
    answer.chunk = std::move(out_.front());
    out_.pop_front();
  }
  return answer;
}

}  // namespace dtrain::proc
