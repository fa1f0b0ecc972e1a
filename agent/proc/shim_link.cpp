#include "agent/proc/shim_link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

namespace dtrain::proc {

namespace {

constexpr std::size_t kReplyV1Bytes = 40;
static_assert(sizeof(shim::ReplyPacket) >= kReplyV1Bytes);

}  // namespace

ShimLink ShimLink::connect(const std::string& directory) {
  const UniqueFd home(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!home) return {};
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(home.get()) + "/" + shim::kSocketFile;
  std::memcpy(name.sun_path, path.c_str(), path.size() + 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
    const int cause = errno;
    socket.reset();
    errno = cause;
    return {};
  }
  return ShimLink(std::move(socket));
}

pid_t ShimLink::peer_pid() const {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

std::uint32_t ShimLink::send(shim::Command command, std::uint32_t a, std::uint32_t b) {
  shim::CommandPacket packet;
  packet.command = static_cast<std::uint16_t>(command);
  packet.a = a;
  packet.b = b;
  return send(packet);
}

std::uint32_t ShimLink::send(shim::CommandPacket packet) {
  packet.sequence = sequence_ + 1 != 0 ? sequence_ + 1 : 1;
  if (::send(socket_.get(), &packet, sizeof(packet), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return 0;
  return sequence_ = packet.sequence;
}

std::uint32_t ShimLink::send(shim::CommandPacket packet, const std::array<int, shim::kRunDescriptors>& descriptors) {
  packet.sequence = sequence_ + 1 != 0 ? sequence_ + 1 : 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptors)> control{};
  iovec part{&packet, sizeof(packet)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::memcpy(CMSG_DATA(head), descriptors.data(), sizeof descriptors);
  if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return 0;
  return sequence_ = packet.sequence;
}

ShimLink::Received ShimLink::receive() {
  while (true) {
    char packet[shim::kPacketBytes];
    const ssize_t n = ::recv(socket_.get(), packet, sizeof(packet), MSG_DONTWAIT);
    // ECONNRESET: the shim ended with commands unread; the error is reported once, before what the shim had still sent.
    if (n < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (n < 0 && errno == EAGAIN) return Nothing{};
    if (n <= 0) return Closed{};
    const auto size = static_cast<std::size_t>(n);
    std::uint16_t kind = 0;
    if (size < sizeof(kind)) continue;
    std::memcpy(&kind, packet, sizeof(kind));
    if (kind == shim::kReplyPacket) {
      shim::ReplyPacket reply;
      if (shim::read_struct(packet, size, kReplyV1Bytes, reply)) return reply;
    } else if (kind == shim::kRecordPacket) {
      if (auto record = parse_record(std::string_view(packet, size))) return std::move(*record);
    } else if (kind == shim::kAskPacket) {
      shim::AskPacket ask;
      if (shim::read_struct(packet, size, shim::kAskBytes, ask)) return ask;
    }
  }
}

}  // namespace dtrain::proc
