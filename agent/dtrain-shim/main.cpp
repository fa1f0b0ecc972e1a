// dtrain-shim DIRECTORY [UNIT]: the small parent of one assignment. Started by the agent, outlives it. See docs/shim.md.
#include "agent/dtrain-shim/shim.h"

int main(int argc, char** argv) {
  static dtrain::shim::Shim shim;  // static: its buffers cost nothing until they are used
  constexpr int kUsage = 64, kUnavailable = 69;
  if (argc != 2 && argc != 3) {
    constexpr char kText[] = "usage: dtrain-shim DIRECTORY [UNIT] (started by dtraind, not by hand)\n";
    (void)!write(2, kText, sizeof(kText) - 1);
    return kUsage;
  }
  if (!shim.open(argv[1], argv[2])) return kUnavailable;
  shim.run();
  return 0;
}
