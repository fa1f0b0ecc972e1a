// Examinations (doctor_facts.h) beside the loop: each on a thread of its own that ends with it, because it may hang.
// Callers limit their number; an examination that never ends keeps its thread, and its result is lost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "agent/host/doctor_facts.h"
#include "common/base/result.h"

namespace dtrain::host {

class Examiner {
 public:
  // The result, or why there is none; the error's message is the cause alone.
  using Sink = std::function<void(std::uint64_t token, Result<node::Examination> seen)>;

  static Result<std::unique_ptr<Examiner>> open();
  ~Examiner();
  Examiner(const Examiner&) = delete;
  Examiner& operator=(const Examiner&) = delete;

  // dispatch() reports the result once, unless the examination hangs for ever. If no thread is available, or
  // kExaminations earlier ones have not ended, the error is reported at once.
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
