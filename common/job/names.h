// The words of the job file for each enumeration, in both directions.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job/job_spec.h"

namespace dtrain::job {

template <class E>
using NameTable = std::span<const std::pair<std::string_view, E>>;

// Every word a user may write. OnDisconnect::by_class has none: it is what leaving the key out means.
NameTable<Framework> names(Framework);
NameTable<RestartPolicy> names(RestartPolicy);
NameTable<OnDisconnect> names(OnDisconnect);
NameTable<AvoidGpuHosts> names(AvoidGpuHosts);
NameTable<CleanPodPolicy> names(CleanPodPolicy);
NameTable<OnPsFailure> names(OnPsFailure);
NameTable<SuccessPolicy> names(SuccessPolicy);
NameTable<EvaluatorInCluster> names(EvaluatorInCluster);
NameTable<Placement> names(Placement);
NameTable<StartAfter> names(StartAfter);
NameTable<SignalTo> names(SignalTo);
NameTable<CheckpointFormat> names(CheckpointFormat);

// The states `notify.on` may name.
std::span<const std::string_view> job_state_names();

template <class E>
std::string_view word_for(E value) {
  for (const auto& [word, candidate] : names(E{}))
    if (candidate == value) return word;
  return "";
}

template <class E>
std::optional<E> from_word(std::string_view text) {
  for (const auto& [word, value] : names(E{}))
    if (word == text) return value;
  return std::nullopt;
}

template <class E>
std::vector<std::string> all_words() {
  std::vector<std::string> words;
  for (const auto& entry : names(E{})) words.emplace_back(entry.first);
  return words;
}

}  // namespace dtrain::job
