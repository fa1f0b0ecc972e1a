// dtrain-shim DIRECTORY [UNIT]: the small parent of one assignment, and of others after it. Started by the agent, outlives it. See
// docs/shim.md.
#include <signal.h>
#include <sys/socket.h>

#include <new>

#include "agent/dtrain-shim/shim.h"

namespace dtrain::shim {

namespace {

constexpr uint64_t kAllButSigterm = ~(uint64_t{1} << (SIGTERM - 1));

// Waits until the agent has another assignment for this process: its directory, in at most `room` bytes. Returns false if
// there will be none, or if it has prepared processes for it and one of them has ended: the agent begins others. When the host stops
// (SIGTERM), there is nothing to record, and the process ends at once.
bool wait_for_assignment(char* directory, size_t room) {
  while (true) {
    if (!Standbys::wait_with(kBirthSocket, kAllButSigterm)) return false;
    char packet[kPacketBytes];
    const ssize_t n = recv(kBirthSocket, packet, sizeof(packet), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    CommandPacket command;
    if (n <= 0 || !read_struct(packet, static_cast<size_t>(n), kCommandV1Bytes, command)) return false;
    if (command.command != static_cast<uint16_t>(Command::serve)) continue;  // meant for the previous assignment
    if (command.a == 0 || command.a > room || command.a + sizeof(command) > static_cast<size_t>(n)) return false;
    memset(directory, 0, room);
    memcpy(directory, packet + n - command.a, command.a);
    return true;
  }
}

}  // namespace

}  // namespace dtrain::shim

int main(int argc, char** argv) {
  using dtrain::shim::Shim;
  static Shim shim;  // static, so that its buffers cost nothing until they are used
  constexpr int kUsage = 64, kUnavailable = 69;
  // Processes are looked for by this argument, so it must always name the present directory; the empty arguments
  // after it may become part of it.
  char* const directory = argc > 1 ? argv[1] : nullptr;
  size_t room = argc > 1 ? strlen(directory) : 0;
  int others = 2;
  while (others < argc && argv[others] == directory + room + 1 && *argv[others] == '\0') ++room, ++others;
  if (argc < 2 || argc > others + 1) {
    constexpr char kText[] = "usage: dtrain-shim DIRECTORY [UNIT] (started by dtraind, not by hand)\n";
    (void)!write(2, kText, sizeof(kText) - 1);
    return kUsage;
  }
  for (bool again = false;; again = true) {
    if (!shim.open(directory, argv[others], again)) return kUnavailable;
    if (!shim.run() || !dtrain::shim::wait_for_assignment(directory, room)) return 0;
    new (&shim) Shim{};
  }
}
