#include "agent/dtrain-shim/launched.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "agent/dtrain-shim/child.h"

namespace dtrain::shim {

Launched::Program Launched::table_[kMostLaunched];

namespace {

enum : size_t { kIn, kOut, kErr, kSocket, kArguments };

void report(int socket, Outcome outcome, uint8_t step, int error, int status) {
  LaunchedReport report;
  report.outcome = static_cast<uint16_t>(outcome);
  report.step = step;
  report.error = error;
  report.status = status;
  (void)!send(socket, &report, sizeof(report), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The file's content as a list for execve, `bytes` long.
class Arguments {
 public:
  Arguments(int fd, uint32_t count, uint32_t bytes) : bytes_(bytes) {
    struct stat file {};
    if (count == 0 || count > kRunArguments || bytes == 0 || bytes > kRunBytes || fstat(fd, &file) != 0 || file.st_size < bytes) return;
    void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED) return;
    text_ = static_cast<char*>(mapped);
    char* at = text_;
    for (uint32_t i = 0; i < count; ++i) {
      auto* const end = static_cast<char*>(memchr(at, '\0', static_cast<size_t>(text_ + bytes - at)));
      if (end == nullptr) return;
      list_[i] = at;
      at = end + 1;
    }
    list_[count] = nullptr;
    good_ = true;
  }
  ~Arguments() {
    if (text_ != nullptr) munmap(text_, bytes_);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  char** list() const { return good_ ? list_ : nullptr; }

 private:
  static char* list_[kRunArguments + 1];
  const uint32_t bytes_;
  char* text_ = nullptr;
  bool good_ = false;
};

char* Arguments::list_[kRunArguments + 1];

}  // namespace

uint32_t Launched::begin(Outcome not_now, const Launch& launch, const CommandPacket& command, int (&fds)[kRunDescriptors], int cgroup,
                         int parent) {
  if (fds[kSocket] < 0) return kMostLaunched;
  uint32_t index = 0;
  while (index < kMostLaunched && table_[index].pid != 0) ++index;
  if (not_now == Outcome::done && index == kMostLaunched) not_now = Outcome::busy;
  const Arguments arguments(fds[kArguments], command.a, command.b);
  if (not_now != Outcome::done || arguments.list() == nullptr) {
    report(fds[kSocket], not_now != Outcome::done ? not_now : Outcome::failed, 0, EINVAL, 0);
    return kMostLaunched;
  }
  ChildPlan plan;
  plan.launch = &launch;
  plan.argv = arguments.list();
  plan.in = fds[kIn];
  plan.out = fds[kOut];
  plan.err = fds[kErr];
  plan.cgroup = cgroup;
  plan.parent = parent;
  const int pid = spawn(plan);
  if (pid < 0 || plan.step != static_cast<uint8_t>(Step::none)) {  // the child, if there is one, is about to end
    report(fds[kSocket], Outcome::failed, pid < 0 ? static_cast<uint8_t>(Step::execute) : plan.step, pid < 0 ? -pid : plan.error, 0);
    return kMostLaunched;
  }
  table_[index] = {pid, fds[kSocket], false};
  fds[kSocket] = -1;
  return index;
}

void Launched::signalled(uint32_t index, const Tree& tree) {
  Program& program = table_[index];
  int32_t number = 0;
  const ssize_t n = program.socket < 0 ? -1 : recv(program.socket, &number, sizeof(number), MSG_DONTWAIT);
  if (n == sizeof(number) && number > 0 && program.pid != 0) {
    program.hung_up = program.hung_up || number == SIGHUP;
    tree.signal_session(program.pid, number);
  }
  if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)) || program.socket < 0) return;
  close(program.socket);  // which also takes it out of epoll: no other process has it
  program.socket = -1;
}

void Launched::ended(int pid, int status, const Tree& tree) {
  for (Program& program : table_) {
    if (program.pid != pid) continue;
    // What has failed was no daemon that has left its session in order: a killed starter of ranks must not leave its ranks.
    if (program.hung_up || status != 0) tree.signal_session(pid, SIGKILL);
    if (program.socket >= 0) {
      report(program.socket, Outcome::done, 0, 0, status);
      close(program.socket);
    }
    program = {};
  }
}

}  // namespace dtrain::shim
