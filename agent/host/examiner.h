// Examinations (doctor_facts.h) beside the loop: each on a thread of its own that ends with it, for it waits for whatever hangs.
// Whoever asks bounds their number; one that never ends keeps its thread, and its answer comes to nobody.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "agent/host/doctor_facts.h"
#include "common/base/result.h"

namespace dtrain::host {

class Examiner {
 public:
  // What was seen, or why nothing: the message is the cause alone.
  using Sink = std::function<void(std::uint64_t token, Result<node::Examination> seen)>;

  static Result<std::unique_ptr<Examiner>> open();
  ~Examiner();
  Examiner(const Examiner&) = delete;
  Examiner& operator=(const Examiner&) = delete;

  // Once there is something to tell, dispatch() does: of each one once, unless it hangs for ever. Where there is no thread to be had,
  // or kExaminations of earlier ones have not ended, at once.
  void begin(std::uint64_t token, DoctorOptions options);
  int fd() const;  // readable: dispatch() has what was seen
  void dispatch(const Sink& sink);

 private:
  struct Shared;
  explicit Examiner(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<Shared> shared_;  // with the threads, which may outlive this
};

inline constexpr std::size_t kExaminations = 16;  // at a time

}  // namespace dtrain::host
