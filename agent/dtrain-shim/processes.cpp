#include "agent/dtrain-shim/processes.h"

#include <signal.h>

#include "agent/dtrain-shim/child.h"

namespace dtrain::shim {

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
