// Closing sockets into which somebody else may have put descriptors (SCM_RIGHTS) that nobody received.
//
// Who lets go of a file last does what its close costs: a TCP socket waits as long as its SO_LINGER says, a file of a file system that
// somebody serves as long as that one likes. What waits unread in a socket is let go by whoever closes that. So a socket that may hold such
// is closed by a process that is about to exit (which no socket makes linger), and which may hang. Where the kernel lets nobody pass
// anything (SO_PASSRIGHTS, Linux 6.16), and where nothing waits unread, it is closed at once.
#pragma once

#include <sys/types.h>

#include <deque>

#include "common/base/result.h"

namespace dtrain::net {

inline constexpr int kMostClosing = 64;           // processes that hang in closing something; beyond, the next wait for one of them
inline constexpr std::size_t kMostToClose = 256;  // sockets that wait for that; with more nobody is accepted

// Connections to this socket, which does not listen yet, take no descriptors. Older kernels cannot.
void refuse_descriptors(int socket);

class LastClose {
 public:
  // What connections to that socket need.
  static Result<LastClose> of(int listener);
  ~LastClose();
  LastClose(LastClose&& other) noexcept;
  LastClose& operator=(LastClose&&) = delete;

  void prepare(int connection) const;         // before anything of it is read
  // Reads as recv(). -1 with EPROTO: descriptors came along; nothing was read, and they stay where they are.
  ssize_t receive(int connection, char* bytes, std::size_t size) const;
  // Nothing can be put into it any more. None of these waits.
  void close(int connection);
  void close_listener(int listener);
  void pass_on();  // what had to wait
  bool full() const { return to_close_.size() >= kMostToClose; }

 private:
  explicit LastClose(bool needed) : needed_(needed) {}
  bool begin();
  void end();
  bool tell(int descriptor);

  const bool needed_;
  pid_t pid_ = -1;
  int socket_ = -1;
  bool closed_untold_ = false;
  std::deque<int> to_close_;
};

}  // namespace dtrain::net
