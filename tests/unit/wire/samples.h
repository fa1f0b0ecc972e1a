// Values of every type that crosses the control socket or reaches a disk, for tests and fuzzers. A value is drawn from
// a seeded Rng through the type's own fields(), so that a field added later is covered without a change here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "common/base/rng.h"
#include "common/wire/codec.h"
#include "common/wire/control.h"
#include "common/wire/manifest_settings.h"

namespace dtrain::test {

// Calls f.template operator()<T>(name) for each payload of a control message, and Message itself.
template <class F>
void for_each_control_type(F&& f) {
  using namespace wire;
  f.template operator()<Message>("message");
  f.template operator()<Empty>("empty");
  f.template operator()<JobName>("job_name");
  f.template operator()<NodeName>("node_name");
  f.template operator()<ErrorReply>("error_reply");
  f.template operator()<SubmitRequest>("submit_request");
  f.template operator()<SubmitReply>("submit_reply");
  f.template operator()<JobsRequest>("jobs_request");
  f.template operator()<JobsReply>("jobs_reply");
  f.template operator()<TasksReply>("tasks_reply");
  f.template operator()<JobDescription>("job_description");
  f.template operator()<NodesReply>("nodes_reply");
  f.template operator()<StatusView>("status_view");
  f.template operator()<EventsRequest>("events_request");
  f.template operator()<EventsReply>("events_reply");
  f.template operator()<TaskSpecsRequest>("task_specs_request");
  f.template operator()<TaskSpecsReply>("task_specs_reply");
  f.template operator()<ActionRequest>("action_request");
  f.template operator()<WatchRequest>("watch_request");
  f.template operator()<JobUpdate>("job_update");
  f.template operator()<LogsRequest>("logs_request");
  f.template operator()<LogChunk>("log_chunk");
  f.template operator()<ExecRequest>("exec_request");
  f.template operator()<ExecInput>("exec_input");
  f.template operator()<ExecOutput>("exec_output");
  f.template operator()<CheckpointsRequest>("checkpoints_request");
  f.template operator()<CheckpointsReply>("checkpoints_reply");
  f.template operator()<BlobRequest>("blob_request");
  f.template operator()<PutBlobRequest>("put_blob_request");
  f.template operator()<GetBlobRequest>("get_blob_request");
  f.template operator()<BlobChunk>("blob_chunk");
  f.template operator()<KeepBlobRequest>("keep_blob_request");
  f.template operator()<CheckpointQuestion>("checkpoint_question");
  f.template operator()<CheckpointAnswer>("checkpoint_answer");
  f.template operator()<GetCheckpointRequest>("get_checkpoint_request");
  f.template operator()<CheckpointFiles>("checkpoint_files");
  f.template operator()<BlobReply>("blob_reply");
  f.template operator()<VersionReply>("version_reply");
  f.template operator()<CancelRequest>("cancel_request");
  f.template operator()<LeaveRequest>("leave_request");
  f.template operator()<FormRequest>("form_request");
  f.template operator()<DrainRequest>("drain_request");
  f.template operator()<RecoverRequest>("recover_request");
  f.template operator()<RecoveryView>("recovery_view");
  f.template operator()<DoctorReply>("doctor_reply");
  f.template operator()<ManifestSettings>("manifest_settings");
}

class Sampler {
 public:
  explicit Sampler(std::uint64_t seed) : rng_(seed) {}

  template <class T>
  T sample() {
    T value{};
    fill(value);
    return value;
  }
  template <class T>
  void operator()(const char*, T& field) {
    fill(field);
  }
  template <class T>
  void operator()(const char*, T& field, wire::Since) {
    fill(field);
  }

 private:
  static constexpr std::uint64_t kMostElements = 3, kMostText = 40;

  template <class T>
  void fill(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = rng_.chance(1, 2);
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(rng_.below(static_cast<std::uint64_t>(enum_last(T{})) + 1));
    } else if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(number());
    } else if constexpr (std::is_same_v<T, std::string>) {
      value.resize(rng_.below(kMostText));
      for (char& c : value) c = static_cast<char>(rng_.below(256));
    } else if constexpr (std::is_same_v<T, Duration>) {
      value = Duration(static_cast<std::int64_t>(number()));
    } else if constexpr (std::is_same_v<T, Instant> || std::is_same_v<T, WallTime>) {
      value = T(typename T::duration(static_cast<std::int64_t>(number())));
    } else if constexpr (wire::detail::is_vector<T>::value) {
      value.resize(rng_.below(kMostElements + 1));
      for (auto& element : value) fill(element);
    } else if constexpr (wire::detail::is_optional<T>::value) {
      if (rng_.chance(1, 2)) fill(value.emplace());
      else value.reset();
    } else if constexpr (wire::detail::is_map<T>::value) {
      for (std::uint64_t n = rng_.below(kMostElements + 1); n > 0; --n) {
        typename T::key_type key{};
        fill(key);
        fill(value[key]);
      }
    } else {
      value.fields(*this);
    }
  }
  // Every magnitude is as likely: the encoding's length depends on it.
  std::uint64_t number() { return rng_.next() >> rng_.below(64); }

  Rng rng_;
};

}  // namespace dtrain::test
