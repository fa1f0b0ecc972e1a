#include "agent/dtrain-shim/link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "agent/dtrain-shim/socket_file.h"

namespace dtrain::shim {

bool Link::listen(uint32_t agent_uid, int epoll) {
  epoll_ = epoll;
  agent_uid_ = agent_uid;
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) return false;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  memcpy(name.sun_path, kSocketFile, sizeof(kSocketFile));
  constexpr int kBacklog = 4;
  return bind_file(listener_, name) && ::listen(listener_, kBacklog) == 0;
}

void Link::adopt(int fd) {
  close_connection();
  fd_ = fd;
}

bool Link::accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return false;
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || (peer.uid != 0 && peer.uid != agent_uid_)) {
    close(fd);
    return false;
  }
  adopt(fd);
  return true;
}

void Link::close_connection() {
  if (fd_ >= 0) {
    // A descriptor leaves epoll only with its last copy, and systemd keeps a copy of the first connection.
    epoll_ctl(epoll_, EPOLL_CTL_DEL, fd_, nullptr);
    close(fd_);
  }
  fd_ = -1;
  greeted_ = reply_waits_ = record_waits_ = false;
}

Link::Received Link::receive(CommandPacket& out, int (&fds)[kRunDescriptors]) {
  char packet[kPacketBytes];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))];
  iovec part{packet, sizeof(packet)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  for (int& fd : fds) fd = -1;
  const ssize_t n = recvmsg(fd_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Received::nothing;
  const cmsghdr* const head = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
    memcpy(fds, CMSG_DATA(head), head->cmsg_len - CMSG_LEN(0));
  out = {};
  if (n <= 0 || !read_struct(packet, static_cast<size_t>(n), kCommandV1Bytes, out)) return Received::closed;
  return Received::command;
}

bool Link::send(const void* bytes, size_t size) {
  if (::send(fd_, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
  if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS) return false;
  close_connection();
  return false;
}

void Link::reply(const ReplyPacket& reply) {
  reply_ = reply;
  reply_waits_ = !send(&reply_, sizeof(reply_)) && fd_ >= 0;
}

void Link::ask(const AskPacket& ask) {
  if (fd_ >= 0 && greeted_) (void)send(&ask, sizeof(ask));
}

void Link::flush(const void* record, size_t record_bytes) {
  if (fd_ >= 0 && reply_waits_) reply_waits_ = !send(&reply_, sizeof(reply_)) && fd_ >= 0;
  if (fd_ >= 0 && record_waits_ && !reply_waits_) record_waits_ = !send(record, record_bytes) && fd_ >= 0;
}

}  // namespace dtrain::shim
