#include "agent/proc/scheduling.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace dtrain::proc {

// Errors of getpriority cannot be told from -1 here, but for the caller itself there are none.
void become_urgent() {
  if (::getpriority(PRIO_PROCESS, 0) == 0) ::setpriority(PRIO_PROCESS, 0, kAgentNiceness);
}

void become_usual() {
  const int fd = ::open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
  char sign = 0;
  if (fd >= 0 && ::read(fd, &sign, 1) == 1 && sign == '-') (void)!::write(fd, "0", 1);
  if (fd >= 0) ::close(fd);
  if (::getpriority(PRIO_PROCESS, 0) < 0) ::setpriority(PRIO_PROCESS, 0, 0);
}

}  // namespace dtrain::proc
