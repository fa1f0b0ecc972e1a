#include "tests/unit/job/generators.h"

#include <algorithm>

#include "common/base/limits.h"
#include "common/job/framework.h"
#include "common/job/manifest_fields.h"
#include "common/job/names.h"
#include "common/job/templates.h"
#include "common/job/text.h"

namespace dtrain::job::testing {

namespace {

std::uint64_t below(std::uint64_t bound) { return *rc::gen::inRange<std::uint64_t>(0, bound); }
bool coin() { return below(2) == 0; }

template <class E>
E any_word() {
  const auto all = names(E{});
  return all[below(all.size())].second;
}

Duration any_duration() {
  const std::vector<Duration> units{1ms, 1s, 1min, 1h, 24h};
  return units[below(units.size())] * static_cast<std::int64_t>(below(500));
}

std::map<std::string, std::string> any_env(const std::vector<std::string>& keys) {
  std::map<std::string, std::string> out;
  for (const auto& key : keys)
    if (coin()) out[key] = escape_templates(*awkward_text());
  return out;
}

std::map<std::string, std::string> any_labels() {
  std::map<std::string, std::string> out;
  for (const char* key : {"team", "a.b/c"}) {
    const std::string value = *awkward_text();
    if (value.size() <= kLabelBytes) out[key] = value;
  }
  return out;
}

RoleSpec any_role(Framework framework, const std::string& name, const std::vector<std::string>& earlier) {
  RoleSpec role;
  role.replicas = name == "chief" ? 1 : static_cast<std::uint32_t>(1 + below(40));
  role.min_replicas = static_cast<std::uint32_t>(1 + below(role.replicas));
  role.command = {"p" + escape_templates(*awkward_text())};
  for (std::uint64_t i = below(3); i > 0; --i) role.command.push_back(escape_templates(*awkward_text()));
  if (coin()) role.command.push_back("--all={hosts:worker}{{hosts:ps}}{task.rank}");
  role.env = any_env({"A", "NULL", "on", "a b", "a.b", "x[1]", "\"q", "- d", "#", "~"});
  if (coin()) role.work_dir = "/w" + *awkward_text();
  role.resources.cpu_millis = below(3) * 500 + below(3);
  role.resources.memory_bytes = below(1ull << (below(62) + 1));
  role.resources.gpus = static_cast<std::uint32_t>(below(9));
  if (role.resources.gpus > 0 && coin()) role.resources.gpu_model = *awkward_text();
  role.node_selector = any_labels();
  role.anti_affinity = coin() ? "none" : coin() ? "host" : "rack";
  role.avoid_gpu_hosts = any_word<AvoidGpuHosts>();
  role.restart_policy = any_word<RestartPolicy>();
  for (const auto& other : earlier)
    if (coin()) role.start_after[other] = any_word<StartAfter>();
  if (coin()) role.on_disconnect = any_word<OnDisconnect>();
  role.exclusive = is_exclusive_role(framework, name) || coin();
  if (role.exclusive && role.on_disconnect == OnDisconnect::replace) role.on_disconnect = OnDisconnect::by_class;
  role.notify = coin();
  role.watchdog = any_duration();
  role.start_timeout = any_duration();
  role.stop_signal = static_cast<std::int32_t>(1 + below(64));
  role.signal_to = any_word<SignalTo>();
  if (coin()) role.warm = coin() ? std::vector<std::string>{"torch", "a.b_1"} : std::vector<std::string>{coin() ? "auto" : "none"};
  if (rules_of(framework).ranks_in_tasks && coin())
    role.nproc_per_node = static_cast<std::uint32_t>(1 + below(role.resources.gpus > 0 ? role.resources.gpus : limits::kRanksPerTask));
  return role;
}

Policy any_policy() {
  Policy policy;
  if (coin()) policy.backoff_limit = static_cast<std::uint32_t>(below(100));
  policy.restart_backoff = {any_duration(), any_duration(), 0s, any_duration(), coin()};
  policy.restart_backoff.max = std::max(policy.restart_backoff.first, policy.restart_backoff.initial) + any_duration();
  policy.failure_threshold = {static_cast<std::uint32_t>(below(9)), 1ms + any_duration()};
  policy.on_ps_failure = any_word<OnPsFailure>();
  if (coin()) policy.active_deadline = std::chrono::seconds(1 + below(100'000));
  if (coin()) policy.ttl_after_finished = std::chrono::seconds(below(100'000));
  policy.clean_pod_policy = any_word<CleanPodPolicy>();
  policy.success_policy = any_word<SuccessPolicy>();
  policy.evaluator_in_cluster = any_word<EvaluatorInCluster>();
  policy.enable_dynamic_worker = coin();
  policy.placement = any_word<Placement>();
  policy.priority = static_cast<std::int32_t>(below(2000)) - 1000;
  policy.expected = std::chrono::seconds(below(1000));
  policy.gang = coin();
  policy.collective = coin();
  if (coin()) policy.grow_after = std::chrono::seconds(below(1000));  // 0: never
  policy.stop_grace_period = any_duration();
  if (coin()) {
    policy.signal_before_deadline = SignalBeforeDeadline{static_cast<std::int32_t>(1 + below(64)), any_duration()};
    if (policy.active_deadline) policy.signal_before_deadline->before = *policy.active_deadline - 1ms;
  }
  return policy;
}

}  // namespace

rc::Gen<std::string> awkward_text() {
  return rc::gen::map(
      rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
          "a", "B", " ", "  ", "'", "\"", "\\", "{", "}", "{{", "}}", "{hosts:ps}", "{task.nobody}", "{hosts:", "${param:", "${param:x}",
          "$", ":", ": ", "#", " #", "\n", "\t", "\r\n", "\x01", "\x7f", "~", "null", "true", "- ", "? ", "|", ">", "&a", "*a", "!t", "%",
          "@", "`", ",", "[", "]", "\xc3\xa4", "\xe2\x80\xa8", "\xc2\x85", "\xef\xbb\xbf", "\xf0\x9f\x98\x80", "---\n", "...\n")),
      [](const std::vector<std::string>& parts) {
        std::string out;
        for (const auto& part : parts) out += part;
        return out;
      });
}

rc::Gen<JobSpec> valid_spec() {
  return rc::gen::exec([] {
    JobSpec spec;
    (coin() ? spec.name : spec.generate_name) = "job-" + std::to_string(below(1000));
    spec.labels = any_labels();
    spec.framework = coin() ? Framework::tensorflow : coin() ? Framework::pytorch : Framework::generic;
    for (const OptionRule& option : rules_of(spec.framework).options)
      if (coin()) spec.options[std::string(option.name)] = option.words.empty() ? *awkward_text() : std::string(option.words.front());
    spec.work_dir = "d" + *awkward_text();
    spec.env = any_env({"A", "TF_CONFIG", "\n", "caf\xc3\xa9"});
    if (coin()) spec.require_paths = {"/" + *awkward_text(), "/data"};
    if (coin()) spec.make_dirs = {"/scratch", "/" + *awkward_text()};
    std::vector<std::string> earlier;
    for (const char* name : {"ps", "chief", "worker", "evaluator", "null", "other"}) {
      if (std::string(name) != "worker" && coin()) continue;
      if (role_rules(spec.framework, name).serves && spec.framework == Framework::pytorch) continue;  // it has none
      spec.roles[name] = any_role(spec.framework, name, earlier);
      earlier.emplace_back(name);
    }
    if (coin()) {
      CheckpointSpec checkpoint;
      checkpoint.dir = "/" + *awkward_text();
      checkpoint.format = any_word<CheckpointFormat>();
      checkpoint.keep = static_cast<std::uint32_t>(below(5));
      checkpoint.replicas = static_cast<std::uint32_t>(1 + below(3));
      checkpoint.restore = coin() ? "auto" : coin() ? "never" : "/" + *awkward_text();
      spec.checkpoint = checkpoint;
    }
    spec.policy = any_policy();
    if (spec.options.contains("variablesOf")) spec.policy.enable_dynamic_worker = false;  // the two exclude each other
    const auto tells_all = [&](const auto& role) {
      return role.second.replicas > 1 && !rules_of(spec.framework).scales_alone(spec, role.first);
    };
    spec.policy.gang = spec.policy.gang || std::any_of(spec.roles.begin(), spec.roles.end(), tells_all);
    if (coin()) spec.notify = {{"/bin/page", *awkward_text()}, {"Failed", "Running"}};
    spec.suspend = coin();
    return spec;
  });
}

}  // namespace dtrain::job::testing
