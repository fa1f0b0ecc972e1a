// dtrain-discover as a child: how it is started and what its answers look like.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/host/machine.h"
#include "common/base/result.h"
#include "common/wire/codec.h"

namespace dtrain::host {

inline constexpr std::size_t kFrameHeaderBytes = 4;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { reset(); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Child {
  pid_t pid = -1;
  Descriptor output, errors;  // blocking; close on exec
};

// Nothing of the agent's environment reaches it but where a maker's library may lie. Its caller waits for it.
Result<Child> start_child(const std::string& program, std::vector<std::string> arguments);

// The last whole answer in what a child has written; unset when there is none that can be read.
template <class T>
std::optional<T> last_answer(std::string_view output) {
  std::optional<T> last;
  while (output.size() >= kFrameHeaderBytes) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < kFrameHeaderBytes; ++i) size = size << 8 | static_cast<unsigned char>(output[i]);
    output.remove_prefix(kFrameHeaderBytes);
    if (size > kMachineBytes || size > output.size()) break;
    auto answer = wire::decode<T>(output.substr(0, size));
    if (!answer) break;
    last = std::move(*answer);
    output.remove_prefix(size);
  }
  return last;
}

}  // namespace dtrain::host
