#include "agent/proc/scheduling.h"

#include <sys/resource.h>

namespace dtrain::proc {

// Errors of getpriority are not told from -1 here: it has none for the caller itself.
void become_urgent() {
  if (::getpriority(PRIO_PROCESS, 0) == 0) ::setpriority(PRIO_PROCESS, 0, kAgentNiceness);
}

void become_usual() {
  if (::getpriority(PRIO_PROCESS, 0) < 0) ::setpriority(PRIO_PROCESS, 0, 0);
}

}  // namespace dtrain::proc
