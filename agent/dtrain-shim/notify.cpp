#include "agent/dtrain-shim/notify.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "agent/dtrain-shim/socket_file.h"

namespace dtrain::shim {

namespace {

// No room for descriptors, which then stay in the message.
struct alignas(cmsghdr) Control {
  char bytes[CMSG_SPACE(sizeof(ucred))];
};

// The sender as the kernel says; uid UINT32_MAX: there is none.
ucred sender_of(const msghdr& message) {
  ucred sender{0, UINT32_MAX, UINT32_MAX};
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (head == nullptr || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_CREDENTIALS) return sender;
  memcpy(&sender, CMSG_DATA(head), sizeof(sender));
  return sender;
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
    // Not cut in the middle of a UTF-8 character.
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
  if (const int64_t now = boot_ns(); now >= strangers_until_) {
    strangers_ = 0;
    strangers_until_ = now + kStrangersTime;
  }
  return flooded_until() == 0 && take(out);
}

// Looks at the message before taking it, because descriptors in it must not be dropped here. The kernel always adds
// the sender; without one there was no message.
bool NotifySocket::take(Notification& out) {
  static char text[kNotifyBytes];
  static Control control;
  iovec part{text, sizeof(text)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  out = {};
  stuck_ = false;
  const ssize_t n = recvmsg(fd_, &message, MSG_PEEK | MSG_DONTWAIT);
  if (n < 0) return errno == EINTR;
  if (n == 0 && message.msg_controllen == 0) return false;
  if ((message.msg_flags & MSG_CTRUNC) == 0) {
    (void)recv(fd_, nullptr, 0, MSG_DONTWAIT);
  } else if (!passed_.drop_message(fd_)) {
    stuck_ = true;
    return false;
  }
  const ucred sender = sender_of(message);
  const bool strange = sender.uid != uid_ && sender.uid != 0 && sender.uid != geteuid();
  strangers_ += strange ? 1 : 0;
  if ((message.msg_flags & MSG_TRUNC) != 0 || strange) return true;
  out.sender = sender.pid;
  for (size_t at = 0; at < static_cast<size_t>(n);) {
    const void* end = memchr(text + at, '\n', static_cast<size_t>(n) - at);
    const size_t stop = end == nullptr ? static_cast<size_t>(n) : static_cast<size_t>(static_cast<const char*>(end) - text);
    parse_line(text + at, stop - at, out);
    at = stop + 1;
  }
  return true;
}

// Nobody can send any more; waiting messages are dropped.
bool NotifySocket::shut() {
  static Notification nobodys;
  shutdown(fd_, SHUT_RD);
  while (take(nobodys)) {
  }
  return !stuck_ && !passed_.holds();
}

}  // namespace dtrain::shim
