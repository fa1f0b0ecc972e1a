// Is this host fit for new tasks? As the program of `healthCheck` in its configuration says: while it fails the host is given none;
// what runs there runs on. Pure: judges how each run of the program ended (agent/proc/health_check.h runs it).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/time.h"

namespace dtrain::node {

inline constexpr std::size_t kHealthLineBytes = 200;    // of its line of output; the rest is cut off
inline constexpr std::size_t kHealthOutputBytes = 4096;  // of its output, from the beginning, in which that line is looked for
// While it goes on failing the reason that all hosts show changes at most so often: the line may have a figure in it.
inline constexpr Duration kHealthReasonEvery = 1min;
// Until it has ended for the first time in an agent's life, nobody knows.
inline constexpr const char* kNotChecked = "its health check has not ended yet";

// How one run ended.
struct HostCheck {
  std::int32_t code = 0, signal = 0;
  std::string cause;   // why it did not begin, or did not end by itself: "did not end within 10 s, and was killed"; "": it did both
  std::string output;  // stdout and stderr as they came, its first kHealthOutputBytes
  bool passed() const { return code == 0 && signal == 0 && cause.empty(); }
};

// The first that is not blank; control characters as '?'. "": there is none.
std::string first_line(std::string_view output);
// How a program of the administrator failed, for people: "epilog ended with 3: /scratch is not mounted". `cause`: why it did not begin, or
// did not end by itself; "": it did both. Its first line of `output` follows.
std::string why_failed(const std::string& program, std::int32_t code, std::int32_t signal, const std::string& cause,
                       std::string_view output);
// Likewise; "": it passed.
std::string why_unfit(const HostCheck& check);

class HostHealth {
 public:
  struct Change {
    std::string reason;   // why the host is unfit from now on; "": it is fit
    bool turned = false;  // from fit to unfit, or back; else it is only said otherwise, or known for the first time
  };
  std::optional<Change> checked(Instant now, const HostCheck& check);
  // There is no check any more: nothing is known.
  void forget() { *this = HostHealth(); }

 private:
  bool known_ = false;
  std::string reason_;
  Instant since_{};  // of reason_
};

}  // namespace dtrain::node
