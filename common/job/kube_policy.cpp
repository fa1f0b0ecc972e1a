// What a manifest says about the whole job: when it fails, how long it is kept, its priority.
#include <limits>

#include "common/job/kube_job.h"
#include "common/job/names.h"
#include "common/job/quantity.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

constexpr std::int64_t kMostSeconds = std::chrono::duration_cast<std::chrono::seconds>(kLongestDuration).count();
constexpr std::int64_t kMostRetries = 1'000'000;  // more would be no limit

void read_scheduling(KubeFields policy, KubeJob& job) {
  const std::uint32_t all = total_replicas(job.spec);
  if (const auto least = policy.number("minAvailable", 0, std::numeric_limits<std::int32_t>::max()); least && *least < all)
    job.notes.ignore(policy.path("minAvailable"), "all " + std::to_string(all) + " tasks begin together");
  for (const std::string_view key : {"priorityClass", "priorityClassName"})
    if (const auto name = policy.text(key)) read_priority_class(policy.path(key), *name, job);
  policy.rest();
}

void read_policy_fields(KubeFields& fields, KubeJob& job) {
  Policy& out = job.spec.policy;
  if (const auto word = fields.text("cleanPodPolicy"); word && !word->empty() && !job.own_clean_pod_policy) {
    if (const auto policy = from_word<CleanPodPolicy>(*word)) out.clean_pod_policy = *policy;
    else
      job.notes.refuse("out-of-range", fields.path("cleanPodPolicy"),
                       "must be " + one_of(all_words<CleanPodPolicy>()) + ", not " + in_quotes(*word), "choose one of them");
  }
  if (const auto limit = fields.number("backoffLimit", 0, kMostRetries)) out.backoff_limit = static_cast<std::uint32_t>(*limit);
  if (const auto seconds = fields.number("activeDeadlineSeconds", 1, kMostSeconds)) out.active_deadline = std::chrono::seconds(*seconds);
  if (const auto seconds = fields.number("ttlSecondsAfterFinished", 0, kMostSeconds))
    out.ttl_after_finished = std::chrono::seconds(*seconds);
  if (const auto suspend = fields.flag("suspend")) job.spec.suspend = *suspend;
  read_scheduling(fields.map("schedulingPolicy"), job);
  // Another controller would run the job instead of the operator: here it runs.
  if (const auto by = fields.text("managedBy"); by && !by->starts_with("kubeflow.org/") && !by->starts_with("trainer.kubeflow.org/"))
    job.notes.ignore(fields.path("managedBy"), "the job is run by this cluster");
}

}  // namespace

void read_priority_class(const std::string& path, const std::string& name, KubeJob& job) {
  if (name.empty()) return;
  const auto found = job.settings.priority_classes.find(name);
  if (found == job.settings.priority_classes.end())
    return job.notes.ignore(path, "priorityClasses in dtraind.yaml has no entry for " + in_quotes(name) + ": the job has priority 0");
  job.spec.policy.priority = found->second;
}

void read_run_policy(KubeFields& spec, KubeJob& job) {
  read_policy_fields(spec, job);
  for (const std::string_view key : {"RunPolicy", "runPolicy"}) {
    KubeFields policy = spec.map(key);
    read_policy_fields(policy, job);
    policy.rest();
  }
}

}  // namespace dtrain::job
