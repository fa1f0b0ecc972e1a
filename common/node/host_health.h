// Decides whether this host is fit for new tasks, by the program `healthCheck` of its configuration: while the
// program fails, the host gets no new tasks, and what runs there runs on. Pure: judges how each run of the program
// ended (agent/proc/health_check.h runs it).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/time.h"

namespace dtrain::node {

inline constexpr std::size_t kHealthLineBytes = 200;     // of the line of output that becomes the reason; the rest is cut off
inline constexpr std::size_t kHealthOutputBytes = 4096;  // of the output, from its beginning, in which that line is looked for
// While the program keeps failing, the reason that all hosts show changes at most this often: the line may contain a
// figure that changes.
inline constexpr Duration kHealthReasonEvery = 1min;
// The reason until the program has ended for the first time in an agent's life.
inline constexpr const char* kNotChecked = "its health check has not ended yet";

// How one run ended.
struct HostCheck {
  std::int32_t code = 0, signal = 0;
  // why it did not start, or did not end by itself: "did not end within 10 s, and was killed"; "": it did both
  std::string cause;
  std::string output;  // stdout and stderr in order of arrival, the first kHealthOutputBytes
  bool passed() const { return code == 0 && signal == 0 && cause.empty(); }
};

// Returns the first line that is not blank, with control characters as '?'; "": there is none.
std::string first_line(std::string_view output);
// Describes for people how a program of the administrator failed: "epilog ended with 3: /scratch is not mounted".
// `cause`: why it did not start, or did not end by itself; "": it did both. The first line of `output` is appended.
std::string why_failed(const std::string& program, std::int32_t code, std::int32_t signal, const std::string& cause,
                       std::string_view output);
// Describes for people why the check failed; "": it passed.
std::string why_unfit(const HostCheck& check);

class HostHealth {
 public:
  struct Change {
    std::string reason;  // why the host is unfit from now on; "": it is fit
    // the host turned from fit to unfit or back; false: the reason changed, or is known for the first time
    bool turned = false;
  };
  std::optional<Change> checked(Instant now, const HostCheck& check);
  bool known() const { return known_; }  // one has ended
  // To be called when no check is configured any more.
  void forget() { *this = HostHealth(); }

 private:
  bool known_ = false;
  std::string reason_;
  Instant since_{};  // of reason_
};

}  // namespace dtrain::node
