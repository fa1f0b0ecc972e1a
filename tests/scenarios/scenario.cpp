#include "tests/scenarios/scenario.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>
#include <sstream>

#include "common/job/manifest.h"
#include "common/job/names.h"
#include "tests/sim/cluster_world.h"
#include "tests/sim/script.h"

namespace dtrain::sim {
namespace {

constexpr Duration kLook = 20ms;   // how often a `by` looks
constexpr Duration kAnswer = 5ms;  // an answer of the agent takes less
constexpr Duration kSlack = 50ms;  // several checks at one instant take their answers' time

using Words = std::vector<std::string>;

Words split(const std::string& line) {
  std::istringstream in(line);
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

class Story {
 public:
  Story(std::string file) : file_(std::move(file)), world_(options()) {}

  std::string run(std::string_view text) {
    world_.start_agents();
    std::istringstream in{std::string(text)};
    for (std::string line; std::getline(in, line) && problem_.empty();) {
      ++line_;
      line = line.substr(0, line.find('#'));
      const Words words = split(line);
      if (words.empty()) continue;
      if (words[0] == "at" || words[0] == "by") step(words);
      else describe(words);
    }
    return problem_;
  }

 private:
  static RunOptions options() {
    RunOptions o;
    o.faults = FaultSet();
    return o;
  }

  void fail_with(const std::string& what) {
    if (problem_.empty()) problem_ = file_ + ":" + std::to_string(line_) + ": " + what;
  }

  Duration duration(const std::string& text) {
    const auto parsed = job::parse_duration(text);
    if (!parsed) fail_with(parsed.error().text());
    return parsed.value_or(Duration{0});
  }

  // ---- jobs
  void describe(const Words& w) {
    if (w[0] == "job" && w.size() == 3) {
      spec_ = job::JobSpec{};
      spec_->name = w[1];
      spec_->framework = w[2] == "tensorflow" ? job::Framework::tensorflow : job::Framework::generic;
      spec_->labels[kTagLabel] = std::to_string(++tags_);
      specs_[w[1]] = *spec_;
      current_ = w[1];
      return;
    }
    if (current_.empty()) return fail_with("no job was begun before '" + w[0] + "'");
    job::JobSpec& spec = specs_[current_];
    if (w[0] == "role" && w.size() >= 3) return add_role(spec, w);
    if (w[0] == "checkpoint") {
      spec.checkpoint = job::CheckpointSpec{};
      spec.checkpoint->dir = "/ckpt/" + spec.name;
      spec.checkpoint->format = *job::from_word<job::CheckpointFormat>("manifest");
    } else if (w[0] == "freeze") {
      spec.policy.on_ps_failure = job::OnPsFailure::freeze;
    } else if (w.size() < 2) {
      fail_with("'" + w[0] + "' needs a value");
    } else if (w[0] == "backoffLimit") {
      spec.policy.backoff_limit = static_cast<std::uint32_t>(std::stoul(w[1]));
    } else if (w[0] == "percent") {
      spec.policy.success_percent = static_cast<std::uint32_t>(std::stoul(w[1]));
    } else if (w[0] == "threshold") {
      spec.policy.failure_threshold.count = static_cast<std::uint32_t>(std::stoul(w[1]));
    } else if (w[0] == "deadline") {
      spec.policy.active_deadline = std::chrono::seconds(std::stol(w[1]));
    } else if (w[0] == "grace") {
      spec.policy.stop_grace_period = std::chrono::seconds(std::stol(w[1]));
    } else if (w[0] == "priority") {
      spec.policy.priority = static_cast<std::int32_t>(std::stol(w[1]));
    } else if (w[0] == "expected") {
      spec.policy.expected = std::chrono::seconds(std::stol(w[1]));
    } else if (w[0] == "growAfter") {
      spec.policy.grow_after = w[1] == "never" ? Duration{0} : duration(w[1]);
    } else if (w[0] == "cpus" && w.size() == 3) {
      spec.roles[w[1]].resources.cpu_millis = 1000 * std::stoul(w[2]);
    } else if (w[0] == "gpus" && w.size() == 3) {
      spec.roles[w[1]].resources.gpus = static_cast<std::uint32_t>(std::stoul(w[2]));
    } else if (w[0] == "least" && w.size() == 3) {
      spec.roles[w[1]].min_replicas = static_cast<std::uint32_t>(std::stoul(w[2]));
    } else if (w[0] == "clean") {
      spec.policy.clean_pod_policy = w[1] == "All"    ? job::CleanPodPolicy::all
                                     : w[1] == "None" ? job::CleanPodPolicy::none
                                                      : job::CleanPodPolicy::running;
    } else if (w[0] == "restart" && w.size() == 3) {
      spec.roles[w[1]].restart_policy = w[2] == "Never"      ? job::RestartPolicy::never
                                        : w[2] == "Always"   ? job::RestartPolicy::always
                                        : w[2] == "ExitCode" ? job::RestartPolicy::exit_code
                                                             : job::RestartPolicy::on_failure;
    } else {
      fail_with("no line of a job begins with '" + w[0] + "'");
    }
  }

  void add_role(job::JobSpec& spec, const Words& w) {
    job::RoleSpec role;
    role.replicas = role.min_replicas = static_cast<std::uint32_t>(std::stoul(w[2]));
    role.command = {"sim", "tag=" + spec.labels[kTagLabel]};
    role.command.insert(role.command.end(), w.begin() + 3, w.end());
    role.exclusive = w[1] == "ps" || w[1] == "chief";
    role.notify = std::any_of(w.begin(), w.end(), [](const auto& word) { return word.starts_with("ready="); });
    for (const auto& [earlier, other] : spec.roles)
      if (w[1] == "worker" || (w[1] == "chief" && earlier == "ps")) role.start_after[earlier] = job::StartAfter::running;
    spec.roles[w[1]] = std::move(role);
  }

  // ---- time
  void step(const Words& w) {
    if (w.size() < 3 || !w[1].ends_with(":")) return fail_with("write: at TIME: what happens");
    const Instant when = Instant{} + duration(w[1].substr(0, w[1].size() - 1));
    if (when + kSlack < world_.now()) return fail_with("time does not run backwards");
    const Words what(w.begin() + 2, w.end());
    if (w[0] == "at") {
      go_to(std::max(when, world_.now()));
      if (problem_.empty() && !deed(what)) expect(what, when);
    } else {
      expect(what, when);
    }
  }

  void go_to(Instant when) {
    world_.run_until(when);
    if (world_.broken())
      fail_with(world_.broken()->invariant + " broke at " + seconds_text(world_.broken()->at) + ": " + world_.broken()->what);
  }

  void expect(const Words& what, Instant until) {
    for (;;) {
      world_.users().observe();
      go_to(std::max(world_.now() + kAnswer, std::min(until, world_.now() + kAnswer)));
      if (!problem_.empty()) return;
      const std::string seen = difference(what);
      if (seen.empty()) return;
      if (world_.now() + kLook > until) return fail_with(seen);
      go_to(world_.now() + kLook);
    }
  }

  // ---- deeds
  bool deed(const Words& w) {
    static const std::map<std::string, wire::Action> kActions = {{"cancel", wire::Action::cancel}, {"suspend", wire::Action::suspend},
                                                                 {"resume", wire::Action::resume}, {"restart", wire::Action::restart},
                                                                 {"delete", wire::Action::remove}, {"rerun", wire::Action::rerun}};
    if (w[0] == "submit" && w.size() == 2 && specs_.contains(w[1])) {
      const job::JobSpec& spec = specs_[w[1]];
      world_.users().submit(spec, tag_of(spec.labels), false);
      return true;
    }
    if (const auto action = kActions.find(w[0]); action != kActions.end() && w.size() >= 2) {
      wire::ActionRequest request;
      request.action = action->second;
      request.job = w.back();
      request.force = w[1] == "--force";
      if (w.size() == 4 && w[2] == "of") request.task = w[1];
      world_.users().action(request);
      return true;
    }
    if (w[0] == "scale" && w.size() == 3) {
      wire::ActionRequest request;
      request.action = wire::Action::scale;
      request.job = w[1];
      request.role = w[2].substr(0, w[2].find('='));
      request.replicas = static_cast<std::uint32_t>(std::stoul(w[2].substr(w[2].find('=') + 1)));
      world_.users().action(request);
      return true;
    }
    if (w[0] == "kill" && w.size() == 4 && w[2] == "of")
      return with_shim(w[1], w[3], [&](const AssignmentId& id) { world_.host().tasks().kill_process(id, SIGKILL); });
    if (w[0] == "kill" && w.size() == 6 && w[1] == "shim")
      return with_shim(w[3], w[5], [&](const AssignmentId& id) { world_.host().tasks().kill_shim(id); });
    if (w.size() == 4 && w[0] == "kill" && w[1] == "agent") return world_.host().kill_agent(duration(w[3])), true;
    if (w.size() == 3 && w[0] == "reboot") return world_.host().reboot(duration(w[2])), true;
    if (w.size() == 4 && w[0] == "pause") return world_.host().pause_agent(duration(w[3])), true;
    if (w.size() == 2 && w[0] == "disk" && w[1] == "error") return world_.host().storage().fail_next(), true;
    if (w.size() == 4 && w[0] == "rot") {
      const std::string dir = "/ckpt/" + w[3];
      if (world_.host().files().in(dir).empty()) return fail_with("there is no checkpoint of " + w[3]), true;
      world_.host().files().rot(dir, std::string(world_.host().files().in(dir).front().info.path));
      return true;
    }
    return false;
  }

  template <class F>
  bool with_shim(const std::string& task, const std::string& job, F act) {
    const SimShim* shim = newest(task, job);
    if (shim == nullptr || !shim->alive) fail_with(task + " of " + job + " has no living shim");
    else act(AssignmentId(shim->spec.id));
    return true;
  }

  // ---- checks: what is seen instead, "" when it is as told
  std::string difference(const Words& w) {
    if (w.size() == 2 && w[0] == "nothing" && w[1] == "runs") {
      const std::size_t live = world_.host().tasks().live_processes();
      return live == 0 ? "" : std::to_string(live) + " processes run";
    }
    if (w.size() == 3 && w[1] == "is") {
      const KnownJob* job = known(w[0]);
      const std::string state = job == nullptr || job->gone ? "gone" : job->state;
      return state == w[2] ? "" : w[0] + " is " + state;
    }
    if (w.size() == 4 && w[1] == "has") {
      const KnownJob* job = known(w[0]);
      if (job == nullptr) return w[0] + " is not known";
      const std::uint64_t seen = w[2] == "restarts" ? job->restarts : newest_generation(job->id);
      return std::to_string(seen) == w[3] ? "" : w[0] + " has " + w[2] + " " + std::to_string(seen);
    }
    if (w.size() >= 4 && w[1] == "of") {
      const SimShim* shim = newest(w[0], w[2]);
      if (shim == nullptr) return w[0] + " of " + w[2] + " never was launched";
      if (w[3] == "runs") return shim->running ? "" : w[0] + " does not run";
      if (w[3] == "does") return shim->running ? w[0] + " runs" : "";
      if (w[3] == "has" && w.size() == 6)
        return std::to_string(shim->attempt) == w[5] ? "" : w[0] + " has attempt " + std::to_string(shim->attempt);
      if (w[3] == "restored" && w.size() == 5) {
        const auto step = shim->spec.env.find("DTRAIN_RESTORE_STEP");
        const std::string seen = step == shim->spec.env.end() ? "0" : step->second;
        return seen == w[4] ? "" : w[0] + " restored step " + seen;
      }
    }
    std::string line;
    for (const auto& word : w) line += word + " ";
    return "not understood: " + line;
  }

  const KnownJob* known(const std::string& name) {
    const KnownJob* found = nullptr;
    for (const auto& [id, job] : world_.known().jobs())
      if (job.name == name) found = &job;
    return found;
  }

  std::uint64_t newest_generation(JobId id) {
    std::uint64_t newest = 0;
    for (const auto& [assignment, shim] : world_.host().tasks().shims())
      if (assignment.job == id) newest = std::max<std::uint64_t>(newest, assignment.generation);
    return newest;
  }

  const SimShim* newest(const std::string& task, const std::string& name) {
    const SimShim* found = nullptr;
    for (const auto& [id, shim] : world_.host().tasks().shims())
      if (id.task.text() == task && shim.spec.job_name == name) found = &shim;
    return found;
  }

  std::string file_, problem_, current_;
  std::uint64_t line_ = 0, tags_ = 0;
  ClusterWorld world_;
  std::optional<job::JobSpec> spec_;
  std::map<std::string, job::JobSpec> specs_;
};

}  // namespace

std::string run_scenario(const std::string& file_name, std::string_view text) { return Story(file_name).run(text); }

}  // namespace dtrain::sim
