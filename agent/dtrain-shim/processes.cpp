#include "agent/dtrain-shim/processes.h"

#include <signal.h>

#include "agent/dtrain-shim/child.h"
#include "agent/dtrain-shim/tree.h"

namespace dtrain::shim {

constexpr int kGenerations = 16;  // of descendants that speak for a rank
// A task may send as much as it likes, and each look reads up to kGenerations files.
constexpr int kLooks = 16;
constexpr int64_t kLooksWithin = 100'000'000;  // ns

MainProcess Processes::table_[kMostRanks];
char Processes::tails_[kMostRanks][kTailBytes];

ProcessStart Processes::add(Launch& launch, Standbys& standbys, int cgroup, int parent) {
  ProcessStart start;
  table_[count_] = MainProcess{};
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0) {
    start.error = errno;
    return start;
  }
  if (pipe2(err, O_CLOEXEC) != 0) {
    start.error = errno;
    close(out[0]);
    close(out[1]);
    return start;
  }
  launch.set_rank(count_);
  ChildPlan plan;
  plan.launch = &launch;
  plan.out = out[1];
  plan.err = err[1];
  plan.cgroup = cgroup;
  plan.parent = parent;
  int pid = standbys.become(count_, launch, out[1], err[1]);
  start.warm = pid > 0;
  if (!start.warm) pid = spawn(plan);
  close(out[1]);
  close(err[1]);
  if (pid < 0) {
    close(out[0]);
    close(err[0]);
    start.error = -pid;
    return start;
  }
  MainProcess& process = table_[count_];
  process.pid = pid;
  process.output[0] = out[0];
  process.output[1] = err[0];
  for (const int fd : process.output) fcntl(fd, F_SETFL, O_NONBLOCK);
  start.step = plan.step;
  start.step_error = plan.error;
  if (plan.step == static_cast<uint8_t>(Step::interpret)) keep_tail(count_, plan.interpreter, strlen(plan.interpreter));
  ++count_;
  return start;
}

uint32_t Processes::take(int pid) {
  uint32_t index = 0;
  while (index < count_ && table_[index].pid != pid) ++index;
  if (index < count_) table_[index].pid = 0;
  return index;
}

void Processes::stopped(int pid, int64_t since_ns) {
  for (uint32_t i = 0; i < count_; ++i)
    if (table_[i].pid == pid && !table_[i].held) table_[i].stopped_ns = since_ns;
}

// One that somebody else stopped before is left alone.
void Processes::hold(MainProcess& process, bool on) {
  if (process.pid == 0 || process.held == on || process.stopped_ns != 0) return;
  process.held = on;
  kill(process.pid, on ? SIGSTOP : SIGCONT);
}

void Processes::keep_behind(task::Lead& lead, int64_t now_ns) {
  task::Progress progress;
  if (count_ == 0 || table_[0].pid == 0 || !progress_of(table_[0].pid, progress)) lead.end();
  if (lead.due() != 0) lead.look(now_ns, progress, count_);
  for (uint32_t i = 1; i < count_; ++i)
    if (table_[i].pid != 0 && lead.due() != 0) hold(table_[i], progress_of(table_[i].pid, progress) && lead.holds(progress));
  for (uint32_t i = 1; i < count_ && lead.due() == 0; ++i) hold(table_[i], false);
}

// The main process that it is or descends from. count_: none, or it is gone. More than that: nobody looks any more for the moment.
uint32_t Processes::ancestor_of(int pid, int64_t now_ns) {
  if (pid <= 1) return count_;
  for (uint32_t i = 0; i < count_; ++i)
    if (table_[i].pid == pid) return i;
  for (uint32_t i = 0; i < count_; ++i)
    if (table_[i].speaker == pid) return i;
  if (now_ns - looks_since_ns_ >= kLooksWithin) {
    looks_since_ns_ = now_ns;
    looks_ = 0;
  }
  if (++looks_ > kLooks) return count_ + 1;
  for (int steps = 0; steps < kGenerations && pid > 1; ++steps) {
    for (uint32_t i = 0; i < count_; ++i)
      if (table_[i].pid == pid) return i;
    pid = parent_of(pid);
  }
  return count_;
}

bool Processes::heard(int pid, int64_t now_ns) {
  const uint32_t by = count_ == 1 ? 0 : ancestor_of(pid, now_ns);
  if (by > count_) return false;
  if (by < count_) table_[by].speaker = pid;
  bool all = true;
  for (uint32_t i = 0; i < count_; ++i) {
    MainProcess& process = table_[i];
    if (by == i || by == count_) process.heard = true;
    if (by == i) process.heard_ns = now_ns;
    all = all && (process.heard || process.heard_ns == 0 || process.pid == 0);
  }
  for (uint32_t i = 0; all && i < count_; ++i) table_[i].heard = false;
  return all;
}

uint32_t Processes::stopped() const {
  uint32_t first = count_;
  for (uint32_t i = 0; i < count_; ++i) {
    const bool stands = table_[i].pid != 0 && table_[i].stopped_ns != 0;
    if (stands && (first == count_ || table_[i].stopped_ns < table_[first].stopped_ns)) first = i;
  }
  return first;
}

uint32_t Processes::stuck() const {
  if (const uint32_t stands = stopped(); stands < count_) return stands;
  uint32_t least = count_;
  for (uint32_t i = 0; i < count_; ++i) {
    const bool sends = table_[i].pid != 0 && table_[i].heard_ns != 0;
    if (sends && (least == count_ || table_[i].heard_ns < table_[least].heard_ns)) least = i;
  }
  return least;
}

bool Processes::any_left() const {
  for (uint32_t i = 0; i < count_; ++i)
    if (table_[i].pid != 0) return true;
  return false;
}

void Processes::signal(int number) const {
  for (uint32_t i = 0; i < count_; ++i)
    if (table_[i].pid != 0) kill(table_[i].pid, number);
}

void Processes::keep_tail(uint32_t index, const char* bytes, size_t size) {
  char* const tail = tails_[index];
  uint16_t& length = table_[index].tail_bytes;
  if (size >= kTailBytes) {
    memcpy(tail, bytes + size - kTailBytes, kTailBytes);
    length = kTailBytes;
    return;
  }
  const size_t room = kTailBytes - size;
  const size_t kept = length < room ? length : room;
  memmove(tail, tail + length - kept, kept);
  memcpy(tail + kept, bytes, size);
  length = static_cast<uint16_t>(kept + size);
}

}  // namespace dtrain::shim
