#include "common/job/names.h"

#include <array>

#include "common/transfer/format.h"

namespace dtrain::job {

namespace {
template <class E, std::size_t N>
using Table = std::array<std::pair<std::string_view, E>, N>;

constexpr auto kFrameworkNames = [] {
  Table<Framework, kFrameworks.size()> out;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = {kFrameworks[i].name, kFrameworks[i].framework};
  return out;
}();
constexpr Table<RestartPolicy, 4> kRestartPolicies{{{"OnFailure", RestartPolicy::on_failure},
                                                    {"Never", RestartPolicy::never},
                                                    {"Always", RestartPolicy::always},
                                                    {"ExitCode", RestartPolicy::exit_code}}};
constexpr Table<OnDisconnect, 3> kOnDisconnect{
    {{"replace", OnDisconnect::replace}, {"freeze", OnDisconnect::freeze}, {"keep", OnDisconnect::keep}}};
constexpr Table<AvoidGpuHosts, 3> kAvoidGpuHosts{
    {{"no", AvoidGpuHosts::no}, {"prefer", AvoidGpuHosts::prefer}, {"require", AvoidGpuHosts::require}}};
constexpr Table<CleanPodPolicy, 3> kCleanPodPolicies{
    {{"Running", CleanPodPolicy::running}, {"All", CleanPodPolicy::all}, {"None", CleanPodPolicy::none}}};
constexpr Table<OnPsFailure, 2> kOnPsFailure{{{"halt", OnPsFailure::halt}, {"freeze", OnPsFailure::freeze}}};
constexpr Table<SuccessPolicy, 2> kSuccessPolicies{{{"", SuccessPolicy::by_framework}, {"AllWorkers", SuccessPolicy::all_workers}}};
constexpr Table<EvaluatorInCluster, 3> kEvaluatorInCluster{
    {{"self", EvaluatorInCluster::self}, {"never", EvaluatorInCluster::never}, {"always", EvaluatorInCluster::always}}};
constexpr Table<Placement, 2> kPlacements{{{"pack", Placement::pack}, {"spread", Placement::spread}}};
constexpr Table<StartAfter, 3> kStartAfter{
    {{"Running", StartAfter::running}, {"Ready", StartAfter::ready}, {"Succeeded", StartAfter::succeeded}}};
constexpr Table<SignalTo, 2> kSignalTo{{{"all", SignalTo::all}, {"main", SignalTo::main}}};
constexpr std::array<std::string_view, 11> kJobStates{"Pending",    "Placed",    "Staging",   "Starting", "Running",  "Restarting",
                                                      "Recovering", "Suspended", "Succeeded", "Failed",   "Cancelled"};
}  // namespace

NameTable<Framework> names(Framework) { return kFrameworkNames; }
NameTable<RestartPolicy> names(RestartPolicy) { return kRestartPolicies; }
NameTable<OnDisconnect> names(OnDisconnect) { return kOnDisconnect; }
NameTable<AvoidGpuHosts> names(AvoidGpuHosts) { return kAvoidGpuHosts; }
NameTable<CleanPodPolicy> names(CleanPodPolicy) { return kCleanPodPolicies; }
NameTable<OnPsFailure> names(OnPsFailure) { return kOnPsFailure; }
NameTable<SuccessPolicy> names(SuccessPolicy) { return kSuccessPolicies; }
NameTable<EvaluatorInCluster> names(EvaluatorInCluster) { return kEvaluatorInCluster; }
NameTable<Placement> names(Placement) { return kPlacements; }
NameTable<StartAfter> names(StartAfter) { return kStartAfter; }
NameTable<SignalTo> names(SignalTo) { return kSignalTo; }
NameTable<CheckpointFormat> names(CheckpointFormat) {
  static const auto kCheckpointFormats = [] {
    std::vector<std::pair<std::string_view, CheckpointFormat>> out{{"auto", CheckpointFormat{}}};
    for (const transfer::Format* format : transfer::formats()) out.emplace_back(format->name, CheckpointFormat(out.size()));
    return out;
  }();
  return kCheckpointFormats;
}
CheckpointFormat enum_last(CheckpointFormat) { return CheckpointFormat(transfer::formats().size()); }
std::span<const std::string_view> job_state_names() { return kJobStates; }

std::string_view to_string(Framework f) { return word_for(f); }

}  // namespace dtrain::job
