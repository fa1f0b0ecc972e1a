// dtrain-discover as a child: how it is started, and the form of its answers.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/base/unique_fd.h"
#include "agent/host/machine.h"
#include "common/base/result.h"
#include "common/wire/codec.h"

namespace dtrain::host {

inline constexpr std::size_t kFrameHeaderBytes = 4;

struct Child {
  pid_t pid = -1;
  UniqueFd output, errors;  // blocking; close on exec
};

// The child gets nothing of the agent's environment but the paths of makers' libraries. Its caller waits for it.
Result<Child> start_child(const std::string& program, std::vector<std::string> arguments);

// The last complete answer in a child's output; unset when there is none that can be read.
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
