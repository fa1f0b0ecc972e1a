#include "agent/proc/fork_server.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "agent/proc/helper_program.h"
#include "agent/proc/pass_descriptors.h"

namespace dtrain::proc {
namespace {

constexpr int kServerSocket = 3;                // in the server, which has nothing else of the agent open
constexpr const char* kName = "dtraind-forks";  // in ps; at most 15 characters

// fork(), but the child's parent is the caller's parent. Not clone3(), which some containers' filters refuse.
pid_t fork_sibling() { return static_cast<pid_t>(::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr)); }

[[noreturn]] void serve(int socket, const ForkServer::Work& work) {
  if (::dup2(socket, kServerSocket) < 0 || ::close_range(kServerSocket + 1, ~0u, 0) != 0) ::_exit(EXIT_FAILURE);
  ::prctl(PR_SET_NAME, kName);
  while (auto received = receive_descriptors<1>(kServerSocket)) {
    const pid_t child = fork_sibling();
    if (child == 0) {
      ::close(kServerSocket);
      work(std::move(received->front()));
      ::_exit(EXIT_SUCCESS);
    }
    const pid_t told = child < 0 ? -errno : child;
    if (::send(kServerSocket, &told, sizeof told, MSG_NOSIGNAL) != sizeof told) break;
  }
  ::_exit(EXIT_SUCCESS);
}

}  // namespace

Result<std::unique_ptr<ForkServer>> ForkServer::open(Work work) {
  std::unique_ptr<ForkServer> server(new ForkServer(std::move(work)));
  if (!server->begin())
    return fail(ErrorCode::io, std::string("could not begin a helper process: ") + std::strerror(errno),
                "raise the limits of processes and open files");
  return server;
}

ForkServer::~ForkServer() { end(); }

bool ForkServer::begin() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const auto patience = std::chrono::duration_cast<std::chrono::seconds>(kForkTime);
  const timeval most{patience.count(), 0};
  if (::setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) != 0) return false;
  const pid_t pid = ::fork();
  if (pid < 0) return false;
  if (pid == 0) serve(theirs.get(), work_);
  pid_ = pid;
  socket_ = std::move(ours);
  return true;
}

void ForkServer::end() {
  if (pid_ < 0) return;
  socket_.reset();
  end_group(pid_);  // the server may be stopped
  pid_ = -1;
}

pid_t ForkServer::start(int descriptor) {
  for (bool again = true;; again = false) {
    if (pid_ < 0 && !begin()) return -errno;
    pid_t child = -EIO;
    if (send_descriptors<1>(socket_.get(), {descriptor})) {
      ssize_t received = 0;
      do received = ::recv(socket_.get(), &child, sizeof child, 0);
      while (received < 0 && errno == EINTR);
      if (received == sizeof child) return child;
    }
    end();
    if (!again) return -EIO;
  }
}

}  // namespace dtrain::proc
