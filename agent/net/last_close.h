// Closes sockets into which others may have put descriptors (SCM_RIGHTS) that nobody received.
//
// Whoever closes a file last waits for its close: for a TCP socket as long as its SO_LINGER says, for a file of a
// user's file system as long as that one likes. Unread messages in a socket are released by whoever closes the
// socket. So a socket that may hold descriptors is closed by a process that is about to exit, which may hang (no
// socket makes an exit linger). If the kernel lets nobody pass descriptors (SO_PASSRIGHTS, Linux 6.16), or if nothing
// waits unread, the socket is closed at once.
#pragma once

#include <sys/types.h>

#include <deque>

#include "common/base/result.h"

namespace dtrain::net {

// processes that hang in closing something; beyond, the next sockets wait for one of them
inline constexpr int kMostClosing = 64;
inline constexpr std::size_t kMostToClose = 256;  // sockets that wait for that; with more, no connection is accepted

// Connections to this socket, which does not listen yet, take no descriptors. Older kernels cannot do that.
void refuse_descriptors(int socket);

class LastClose {
 public:
  // Finds out what connections to that socket need.
  static Result<LastClose> of(int listener);
  ~LastClose();
  LastClose(LastClose&& other) noexcept;
  LastClose& operator=(LastClose&&) = delete;

  void prepare(int connection) const;  // to be called before the connection is read
  // Reads like recv(). Returns -1 with EPROTO if descriptors came along; nothing was read, and they stay where they are.
  ssize_t receive(int connection, char* bytes, std::size_t size) const;
  // For sockets into which nothing can be put any more. These calls do not block.
  void close(int connection);
  void close_listener(int listener);
  void pass_on();  // continues with what had to wait
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
