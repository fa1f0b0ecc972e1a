// Descriptors over a socket (unix(7), SCM_RIGHTS): a message of one byte and exactly so many.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>

#include "agent/base/unique_fd.h"

namespace dtrain::proc {

template <std::size_t N>
struct DescriptorMessage {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(N * sizeof(int))> control{};
  msghdr header{};
  DescriptorMessage() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
};

// The caller keeps its own descriptors. False: nobody can receive them; errno says why.
template <std::size_t N>
bool send_descriptors(int socket, const std::array<int, N>& descriptors) {
  DescriptorMessage<N> message;
  cmsghdr* const head = CMSG_FIRSTHDR(&message.header);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::memcpy(CMSG_DATA(head), descriptors.data(), sizeof descriptors);
  return ::sendmsg(socket, &message.header, MSG_NOSIGNAL) == 1;
}

// Waits for a message. nullopt: the other end is gone, or sent something else.
template <std::size_t N>
std::optional<std::array<UniqueFd, N>> receive_descriptors(int socket) {
  for (;;) {
    DescriptorMessage<N> message;
    const ssize_t received = ::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC);
    if (received < 0 && errno == EINTR) continue;
    const cmsghdr* const head = received == 1 ? CMSG_FIRSTHDR(&message.header) : nullptr;
    if (head == nullptr || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(N * sizeof(int))) return std::nullopt;
    std::array<int, N> numbers;
    std::memcpy(numbers.data(), CMSG_DATA(head), sizeof numbers);
    std::array<UniqueFd, N> descriptors;
    for (std::size_t i = 0; i < N; ++i) descriptors[i].reset(numbers[i]);
    return descriptors;
  }
}

}  // namespace dtrain::proc
