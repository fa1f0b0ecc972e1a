#include "agent/dtrain-shim/notify.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "agent/dtrain-shim/socket_file.h"

namespace dtrain::shim {

namespace {

constexpr size_t kPassedDescriptors = 253;  // SCM_MAX_FD

struct alignas(cmsghdr) Control {
  char bytes[CMSG_SPACE(sizeof(int) * kPassedDescriptors) + CMSG_SPACE(sizeof(ucred))];
};

// CMSG_NXTHDR() without the function of glibc that is behind it.
cmsghdr* next_header(const msghdr& message, cmsghdr* present) {
  char* next = reinterpret_cast<char*>(present) + CMSG_ALIGN(present->cmsg_len);
  const char* end = static_cast<char*>(message.msg_control) + message.msg_controllen;
  if (present->cmsg_len < sizeof(cmsghdr) || end - next < static_cast<ptrdiff_t>(sizeof(cmsghdr))) return nullptr;
  return reinterpret_cast<cmsghdr*>(next);
}

// Closes what was passed; returns the sender's uid as the kernel says, or UINT32_MAX.
uint32_t take_control(msghdr& message) {
  uint32_t uid = UINT32_MAX;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = next_header(message, c)) {
    if (c->cmsg_level != SOL_SOCKET) continue;
    if (c->cmsg_type == SCM_RIGHTS) {
      const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        close(fd);
      }
    } else if (c->cmsg_type == SCM_CREDENTIALS) {
      ucred sender{};
      memcpy(&sender, CMSG_DATA(c), sizeof(sender));
      uid = sender.uid;
    }
  }
  return uid;
}

void parse_line(const char* line, size_t size, Notification& out) {
  constexpr char kStatus[] = "STATUS=";
  constexpr size_t kPrefix = sizeof(kStatus) - 1;
  const auto is = [&](const char* text) { return size == strlen(text) && memcmp(line, text, size) == 0; };
  if (is("READY=1")) out.ready = true;
  if (is("STOPPING=1")) out.stopping = true;
  if (is("WATCHDOG=1")) ++out.watchdogs;
  if (size < kPrefix || memcmp(line, kStatus, kPrefix) != 0) return;
  size_t length = size - kPrefix;
  if (length > kStatusBytes) {
    length = kStatusBytes;
    // Not in the middle of a UTF-8 character.
    while (length > 0 && (static_cast<unsigned char>(line[kPrefix + length]) & 0xC0) == 0x80) --length;
  }
  memcpy(out.status, line + kPrefix, length);
  out.status_bytes = static_cast<uint16_t>(length);
  out.has_status = true;
}

}  // namespace

bool NotifySocket::open(Launch& launch) {
  uid_ = (launch.header.flags & kSwitchUser) != 0 ? launch.header.uid : geteuid();
  fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0) return false;
  const int on = 1;
  if (setsockopt(fd_, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) return false;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const size_t length = strlen(launch.notify);
  if (launch.notify[0] == '@') {
    if (length > sizeof(name.sun_path)) return errno = ENAMETOOLONG, false;
    memcpy(name.sun_path + 1, launch.notify + 1, length - 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
    if (bind(fd_, reinterpret_cast<sockaddr*>(&name), size) != 0) return false;
  } else {
    memcpy(name.sun_path, kNotifyFile, sizeof(kNotifyFile));
    if (!bind_file(fd_, name)) return false;
    if (uid_ != geteuid() && chown(kNotifyFile, uid_, static_cast<gid_t>(-1)) != 0) return false;
  }
  variable_.add("NOTIFY_SOCKET=").add(launch.notify);
  launch.set_notify(variable_.data());
  return true;
}

bool NotifySocket::receive(Notification& out) {
  static char text[kNotifyBytes];
  static Control control;
  iovec part{text, sizeof(text)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  out = {};
  const ssize_t n = recvmsg(fd_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) return errno == EINTR;
  const uint32_t sender = take_control(message);
  if ((message.msg_flags & MSG_TRUNC) != 0 || (sender != uid_ && sender != 0 && sender != geteuid())) return true;
  for (size_t at = 0; at < static_cast<size_t>(n);) {
    const void* end = memchr(text + at, '\n', static_cast<size_t>(n) - at);
    const size_t stop = end == nullptr ? static_cast<size_t>(n) : static_cast<size_t>(static_cast<const char*>(end) - text);
    parse_line(text + at, stop - at, out);
    at = stop + 1;
  }
  return true;
}

}  // namespace dtrain::shim
