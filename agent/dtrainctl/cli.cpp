#include "agent/dtrainctl/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/words.h"
#include "common/job/manifest.h"
#include "common/job/names.h"

namespace dtrain::ctl {
namespace {

// Verbs of docs/contract.md that this version lacks.
constexpr std::array<std::string_view, 1> kLacking{"top"};

using Pair = std::pair<std::string, std::string>;

Pair split_pair(const std::string& text, const char* option) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) throw CLI::ValidationError(option, "'" + text + "' is not of the form NAME=VALUE");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

std::uint32_t natural(const std::string& text, const char* option) {
  std::uint32_t value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (wrong != std::errc() || end != text.data() + text.size())
    throw CLI::ValidationError(option, "'" + text + "' is no whole number from 0");
  return value;
}

// "30s", "5m"; a bare number is seconds.
Duration time_span(const std::string& text, const char* option) {
  const bool bare = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  auto span = job::parse_duration(bare ? text + "s" : text);
  if (!span) throw CLI::ValidationError(option, span.error().text());
  return *span;
}

std::vector<std::string> job_states() {
  const auto names = job::job_state_names();
  return {names.begin(), names.end()};
}

std::int64_t wall_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class CommandLine {
 public:
  explicit CommandLine(std::vector<std::string> command) : command_(std::move(command)) {
    app_.require_subcommand(1);
    app_.set_help_flag("-h,--help", "say what can be given, and end");
    app_.option_defaults()->always_capture_default(false);
    add_globals();
    add_job_verbs();
    add_look_verbs();
    add_task_verbs();
    add_action_verbs();
    add_other_verbs();
    for (CLI::App* verb : app_.get_subcommands({})) verb->fallthrough();  // global options may follow the verb
  }

  CLI::App& app() { return app_; }
  Globals globals() {
    if (!timeout_.empty()) globals_.timeout = time_span(timeout_, "--timeout");
    globals_.color = !no_color_;
    return globals_;
  }
  int act(Session& session) const { return action_(session); }
  std::vector<std::string> verbs() {
    std::vector<std::string> names{"apply"};
    for (const CLI::App* verb : app_.get_subcommands({})) names.push_back(verb->get_name());
    return names;
  }
  // The verb among the arguments; "" when there is none.
  std::string verb_of(const std::vector<std::string>& args) {
    for (std::size_t i = 0; i < args.size(); ++i) {
      if (args[i].empty() || args[i][0] != '-') return args[i];
      const CLI::Option* option = app_.get_option_no_throw(args[i].substr(0, args[i].find('=')));
      if (option != nullptr && option->get_items_expected_min() > 0 && args[i].find('=') == std::string::npos) ++i;
    }
    return "";
  }

 private:
  CLI::App* verb(const std::string& name, const std::string& help) { return app_.add_subcommand(name, help); }
  template <class F>
  void does(CLI::App* sub, F f) {
    sub->callback([this, f] { action_ = f; });
  }
  // Options that may occur several times, each with one value.
  static void each_one(CLI::Option* option) {
    option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
  }

  void add_globals() {
    app_.add_option("--agent", globals_.agent.at, "the agent's control socket, or HOST:PORT of one on another machine (port: gossip + 2)")
        ->envname("DTRAIN_AGENT");
    app_.add_option("--key-file", globals_.agent.key_file, "your client key, for HOST:PORT; the local control socket needs none")
        ->envname("DTRAIN_KEY_FILE");
    static const std::map<std::string, Format> formats{
        {"table", Format::table}, {"wide", Format::wide}, {"json", Format::json}, {"yaml", Format::yaml}};
    app_.add_option("-o,--output", globals_.format, "table, wide, json or yaml")
        ->transform(CLI::CheckedTransformer(formats).description("table|wide|json|yaml"));
    app_.add_option("--timeout", timeout_, "longest time for an answer, such as 10s; wait: for the wait");
    app_.add_flag("--no-color", no_color_, "no colours");
    app_.set_version_flag("--version", "dtrainctl " DTRAIN_VERSION);
  }

  void add_file(CLI::App* sub, bool required) {
    CLI::Option* file = sub->add_option("file", file_.file, "job file; - is stdin");
    if (required) file->required();
    each_one(sub->add_option("--set", sets_, "PATH=V: replaces a value of the file"));
    each_one(sub->add_option("--param", params_, "K=V: fills ${param:K}"));
  }
  void add_package(CLI::App* sub) {
    sub->add_option("--package", file_.package, "this directory is the package of each of its jobs, such as one from a manifest");
  }
  FileOptions file() const {
    FileOptions options = file_;
    for (const std::string& text : sets_) options.sets.push_back(split_pair(text, "--set"));
    for (const std::string& text : params_) options.params.insert(split_pair(text, "--param"));
    return options;
  }

  void add_job_verbs() {
    CLI::App* run = verb("run", "submit, then follow with progress and logs: run FILE, or run [options] -- CMD...");
    add_file(run, false);
    add_package(run);
    const std::vector<const CLI::Option*> before = std::as_const(*run).get_options();
    run->add_option("--ps", run_.ps, "parameter servers");
    CLI::Option* workers = run->add_option("--worker", run_.workers, "workers (default 1)");
    run->add_flag("--chief", run_.chief, "one chief beside the workers");
    run->add_option("-n,--nodes", run_.hosts, "one worker on each of N hosts")->check(CLI::Range(1, 10'000))->excludes(workers);
    run->add_option("--nproc-per-node", run_.nproc, "pytorch: ranks that each worker starts: a number, gpu, cpu or auto");
    run->add_option("--gpus", run_.gpus, "GPUs of each worker and the chief (with --nproc-per-node gpu: all that N hosts have)");
    run->add_option("--cpus", run_.cpus, "CPUs of each worker and the chief");
    each_one(run->add_option("-e,--env", run_.env, "NAME=VALUE: a variable of all tasks; NAME alone: with the value that it has here"));
    run->add_option("--name", run_.name, "the job's name (default: after the command)");
    run->add_option("--framework", run_.framework, "default: tensorflow (--ps, --chief), pytorch (-n, --nproc-per-node), else generic");
    std::vector<const CLI::Option*> of_command = std::as_const(*run).get_options();
    std::erase_if(of_command, [&](const CLI::Option* option) { return std::ranges::count(before, option) > 0; });
    run->add_flag("--replace", run_.replace, "a finished job of that name gives way");
    run->add_flag("--detach", run_.detach, "submit only");
    run->add_flag("--cancel-on-exit", run_.cancel_on_exit, "^C cancels the job");
    run->add_flag("--raw", run_.raw, "escape sequences of tasks reach the terminal, not colours alone");
    run->callback([this, of_command] {
      RunOptions options = run_;
      options.file = file();
      options.command = command_;
      if (options.file.file.empty() == options.command.empty())
        throw CLI::ValidationError("run", "give either a job file, or a command behind --");
      for (const CLI::Option* option : of_command)
        if (options.command.empty() && option->count() > 0)
          throw CLI::ValidationError(option->get_name(),
                                     "it belongs to a command, which comes after --: dtrainctl run [options] -- CMD...");
      action_ = [options](Session& s) { return cmd_run(s, options); };
    });
    CLI::App* submit = verb("submit", "hand in a job; prints its name once it is durable")->alias("apply");
    add_file(submit, true);
    add_package(submit);
    submit->add_flag("--dry-run", submit_.dry_run, "plan only");
    submit->add_flag("--replace", submit_.replace, "a finished job of that name gives way");
    submit->callback([this] {
      SubmitOptions options = submit_;
      options.file = file();
      action_ = [options](Session& s) { return cmd_submit(s, options); };
    });
    CLI::App* plan = verb("plan", "where each task would run and the environment it would get; starts nothing");
    add_file(plan, true);
    add_package(plan);
    plan->callback([this] { action_ = [options = file()](Session& s) { return cmd_plan(s, options); }; });
    CLI::App* convert = verb("convert", "the dtrain/v1 job that a manifest means");
    add_file(convert, true);
    each_one(convert->add_option("--app-config", app_config_, "the appConfig.json that belongs to Slider's resources.json"));
    convert->callback([this] {
      FileOptions options = file();
      options.app_config = app_config_;
      action_ = [options](Session& s) { return cmd_convert(s, options); };
    });
  }

  void add_jobs_options(CLI::App* sub) {
    each_one(sub->add_option("-l,--label", labels_, "K=V: only jobs with this label"));
    sub->add_option("--user", jobs_.user, "only this user's jobs");
    sub->add_option("--state", jobs_.state, "only jobs in this state")->check(CLI::IsMember(job_states()));
    sub->add_flag("-w,--watch", jobs_.watch, "go on showing");
    sub->callback([this] {
      JobsOptions options = jobs_;
      for (const std::string& text : labels_) options.labels.insert(split_pair(text, "--label"));
      action_ = [options](Session& s) { return cmd_jobs(s, options); };
    });
  }
  void add_look_verbs() {
    add_jobs_options(verb("jobs", "all jobs (also: get jobs)"));
    CLI::App* get = verb("get", "get jobs: the same as jobs");
    get->add_option("kind", kind_, "jobs")->required()->check(CLI::IsMember({"jobs"}));
    add_jobs_options(get);
    CLI::App* describe = verb("describe", "everything about a job or a node");
    describe->add_option("kind", kind_, "job or node")->required()->check(CLI::IsMember({"job", "node"}));
    describe->add_option("name", named_.name, "its name")->required();
    does(describe, [this](Session& s) { return kind_ == "job" ? cmd_describe_job(s, named_) : cmd_describe_node(s, named_); });
    const auto named = [this](const char* name, const char* help, bool required, int (*run)(Session&, const NamedOptions&)) {
      CLI::App* sub = verb(name, help);
      if (name != std::string_view("nodes")) {
        CLI::Option* job = sub->add_option("job", named_.name, "job");
        if (required) job->required();
      }
      sub->add_flag("-w,--watch", named_.watch, "go on showing");
      does(sub, [this, run](Session& s) { return run(s, named_); });
    };
    named("tasks", "the tasks of a job's current generation", true, cmd_tasks);
    named("status", "the cluster, or one job, at a glance", false, cmd_status);
    named("nodes", "the hosts", false, cmd_nodes);
    CLI::App* topology = verb("topology", "a host's packages, NUMA nodes, cores and GPUs");
    topology->add_option("node", named_.name, "node")->required();
    does(topology, [this](Session& s) { return cmd_topology(s, named_); });
    CLI::App* drain = verb("drain", "a host is given no more tasks, and its tasks go to others");
    drain->add_option("node", drain_.request.node, "node")->required();
    drain->add_option("--reason", drain_.request.reason, "for those who wonder");
    drain->add_flag("--wait", drain_.wait, "until no task is left there");
    drain->add_option("--deadline", drain_deadline_, "then what has not moved is ended all the same, and waits in the queue");
    drain->callback([this] {
      DrainOptions options = drain_;
      if (!drain_deadline_.empty()) {
        const Duration deadline = time_span(drain_deadline_, "--deadline");
        if (deadline <= Duration{}) throw CLI::ValidationError("--deadline", "it must be longer than 0");
        options.request.deadline_ms = std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count();
      }
      action_ = [options](Session& s) { return cmd_drain(s, options); };
    });
    CLI::App* undrain = verb("undrain", "a drained host is given tasks again");
    undrain->add_option("node", drain_.request.node, "node")->required();
    undrain->callback([this] {
      DrainOptions options = drain_;
      options.request.on = false;
      action_ = [options](Session& s) { return cmd_drain(s, options); };
    });
    CLI::App* leave = verb("leave", "this node leaves the cluster for good; or a dead one is forgotten");
    leave->add_option("node", named_.name, "a node that is down or dead; without: this one");
    does(leave, [this](Session& s) { return cmd_leave(s, named_); });
    CLI::App* forget = verb("forget-node", "forgets a node that is down or dead: its name is free");
    forget->add_option("node", named_.name, "node")->required();
    does(forget, [this](Session& s) { return cmd_leave(s, named_); });
    CLI::App* form = verb("form", "the founders that are there form the cluster without those who will not come");
    form->add_option("--without", without_, "a founder as `join` names it; repeat it, or separate by commas")->required()->delimiter(',');
    does(form, [this](Session& s) { return cmd_form(s, without_); });
    CLI::App* recover = verb("recover-quorum", "most voters are lost for good: this node's log is the cluster's from now on");
    recover->add_flag("--yes", recover_.yes, "do it without asking");
    recover->add_flag("--force", recover_.force, "also where the log of another node that is up reaches further");
    does(recover, [this](Session& s) { return cmd_recover_quorum(s, recover_); });
    CLI::App* events = verb("events", "what happened, in order");
    events->add_option("job", events_.job, "job; without: the whole cluster");
    events->add_flag("-f,--follow", events_.follow, "go on showing");
    does(events, [this](Session& s) { return cmd_events(s, events_); });
    CLI::App* spec = verb("cluster-spec", "command and environment that the tasks were given");
    spec->add_option("job", specs_.job, "job")->required();
    spec->add_option("--task", specs_.task, "only this task");
    does(spec, [this](Session& s) { return cmd_cluster_spec(s, specs_); });
    CLI::App* checkpoints = verb("checkpoints", "the checkpoints of a job");
    checkpoints->add_option("job", checkpoints_.job, "job")->required();
    checkpoints->add_flag("--verify", checkpoints_.verify, "read and check every byte now");
    does(checkpoints, [this](Session& s) { return cmd_checkpoints(s, checkpoints_); });
    CLI::App* verify = verb("verify", "reads and checks a checkpoint on this host, without an agent");
    verify->add_option("path", path_, "a checkpoint, or a directory of checkpoints")->required();
    does(verify, [this](Session& s) { return cmd_verify(s, path_); });
  }

  void add_task_verbs() {
    CLI::App* wait = verb("wait", "until a job reaches a state");
    wait->add_option("job", wait_.job, "job")->required();
    std::vector<std::string> targets = job_states();
    targets.insert(targets.end(), {"Finished", "deleted"});
    wait->add_option("--for", wait_.target, "a job state, Finished or deleted")->required()->check(CLI::IsMember(targets));
    does(wait, [this](Session& s) { return cmd_wait(s, wait_); });

    CLI::App* logs = verb("logs", "what a job or one task of it wrote");
    wire::LogsRequest& request = logs_.request;
    logs->add_option("job", request.job, "job")->required();
    logs->add_option("task", request.task, "task, such as worker-1; without: the whole job, each line with its task");
    logs->add_flag("-f,--follow", request.follow, "go on until the job ends");
    CLI::Option* attempt = logs->add_option("--attempt", attempt_, "number of the attempt, or all (default: the latest)");
    logs->add_flag("--previous", request.previous, "the attempt before the latest")->excludes(attempt);
    logs->add_option("--tail", request.tail, "only the last N lines")->check(CLI::NonNegativeNumber);
    logs->add_option("--since", since_, "a time span such as 5m, or an RFC 3339 time");
    logs->add_flag("--timestamps", logs_.timestamps, "each line with the time of its arrival");
    const auto rank = [this](std::uint16_t number) { logs_.request.rank = number + 1u; };
    logs->add_option_function<std::uint16_t>("--rank", rank, "only this rank of the task, from 0 (LOCAL_RANK)");
    logs->add_flag("--stderr", request.stderr_only, "only stderr");
    logs->add_flag("--raw", logs_.raw, "escape sequences of tasks reach the terminal, not colours alone");
    logs->callback([this] {
      LogsOptions options = logs_;
      if (attempt_ == "all") options.request.all_attempts = true;
      else if (!attempt_.empty()) options.request.attempt = natural(attempt_, "--attempt");
      if (!since_.empty()) {
        auto since = parse_since(since_, wall_ms());
        if (!since) throw CLI::ValidationError("--since", since.error().text());
        options.request.since_ms = *since;
      }
      action_ = [options](Session& s) { return cmd_logs(s, options); };
    });
    CLI::App* exec = verb("exec", "runs a command beside a task: exec JOB TASK -- CMD...");
    exec->add_option("job", exec_.job, "job")->required();
    exec->add_option("task", exec_.task, "task, such as worker-1")->required();
    const auto of_rank = [this](std::uint16_t number) { exec_.rank = number + 1u; };
    exec->add_option_function<std::uint16_t>("--rank", of_rank, "in the surroundings of this rank of the task, from 0 (LOCAL_RANK)");
    exec->callback([this] {
      if (command_.empty()) throw CLI::ValidationError("exec", "give a command behind --");
      ExecOptions options = exec_;
      options.command = command_;
      action_ = [options](Session& s) { return cmd_exec(s, options); };
    });
  }

  CLI::App* action(const std::string& name, const std::string& help, wire::Action what) {
    CLI::App* sub = verb(name, help);
    sub->add_option("job", act_.request.job, "job")->required();
    does(sub, [this, what](Session& s) {
      act_.request.action = what;
      return cmd_action(s, act_);
    });
    return sub;
  }
  void add_action_verbs() {
    action("cancel", "ends a job for good", wire::Action::cancel);
    action("suspend", "ends a job's tasks; resume starts them again", wire::Action::suspend);
    action("resume", "goes on with a suspended job", wire::Action::resume);
    CLI::App* restart = action("restart", "a new generation of a job, or a new attempt of one task", wire::Action::restart);
    CLI::Option* task = restart->add_option("task", act_.request.task, "only this task");
    restart->add_option("--package", act_.package_dir, "with this directory as its package")->excludes(task);
    restart->add_flag("--from-scratch", act_.request.from_scratch, "restores no checkpoint")->excludes(task);
    CLI::App* scale = verb("scale", "changes how many tasks a role has: scale JOB ROLE=N...");
    scale->add_option("job", act_.request.job, "job")->required();
    scale->add_option("replicas", scale_, "ROLE=N")->required();
    scale->callback([this] {
      ActionOptions options = act_;
      options.request.action = wire::Action::scale;
      for (const std::string& text : scale_) {
        const Pair pair = split_pair(text, "ROLE=N");
        options.scale.emplace_back(pair.first, natural(pair.second, "ROLE=N"));
      }
      action_ = [options](Session& s) { return cmd_action(s, options); };
    });
    CLI::App* remove = action("delete", "forgets a finished job, its logs and its working copy", wire::Action::remove);
    remove->add_flag("--force", act_.request.force, "also a running one: its tasks are ended first");
    remove->add_flag("--no-wait", act_.no_wait, "answer at once, though its tasks may still end and its name is not free yet");
    action("rerun", "a finished job again, as a new run", wire::Action::rerun);
  }

  void add_other_verbs() {
    CLI::App* completion = verb("completion", "a completion script for bash, zsh or fish");
    completion->add_option("shell", shell_, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish", "names"}).description("bash|zsh|fish"));
    completion->add_option("kind", names_of_)->group("");
    completion->add_option("job", names_job_)->group("");
    does(completion, [this](Session& s) { return cmd_completion(s, shell_, names_of_, names_job_, summaries(), options_of(app_, false)); });
    CLI::App* keygen = verb("keygen", "makes the cluster's key file, or a client's; needs no agent");
    keygen->add_option("file", keygen_.file, "must not exist yet; its directory must")->required();
    keygen->add_flag("--add", keygen_.add, "append a further key to an existing file, for rotation");
    CLI::Option* client = keygen->add_flag("--client", keygen_.client, "a key for one user of dtrainctl on other machines");
    keygen->add_option("--cluster-key", keygen_.cluster_key, "the cluster's key file, which it is made of")->needs(client);
    does(keygen, [this](Session& s) { return cmd_keygen(s, keygen_); });
    CLI::App* doctor = verb("doctor", "what is wrong with this host and its way to the others, each with its cure");
    doctor->add_option("--config", doctor_.config, "the agent's configuration, for where no agent answers");
    does(doctor, [this](Session& s) { return cmd_doctor(s, doctor_); });
    does(verb("version", "the versions of this program and of the agent"), [](Session& s) { return cmd_version(s); });
  }

  static std::vector<std::string> options_of(CLI::App& app, bool only_valued) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
      if (only_valued && option->get_items_expected_min() == 0) continue;
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    }
    return names;
  }

  std::vector<VerbSummary> summaries() {
    static const auto arguments = [] {
      std::map<std::string, std::pair<std::string, std::string>> of_verb{
          {"describe", {"kind", "job-or-node"}}, {"get", {"get-kind", ""}}, {"completion", {"shell", ""}}};
      for (const char* name : {"run", "submit", "apply", "plan", "convert", "verify", "keygen"}) of_verb[name] = {"file", ""};
      for (const char* name :
           {"tasks", "status", "events", "cluster-spec", "checkpoints", "wait", "cancel", "suspend", "resume", "scale", "delete", "rerun"})
        of_verb[name] = {"job", ""};
      for (const char* name : {"logs", "exec", "restart"}) of_verb[name] = {"job", "task"};
      for (const char* name : {"topology", "leave", "forget-node", "drain", "undrain"}) of_verb[name] = {"node", ""};
      return of_verb;
    }();
    const std::vector<std::string> global = options_of(app_, false), global_valued = options_of(app_, true);
    std::vector<VerbSummary> all;
    for (CLI::App* sub : app_.get_subcommands({})) {
      VerbSummary summary{sub->get_name(), sub->get_description(), options_of(*sub, false), options_of(*sub, true), "", ""};
      summary.valued.insert(summary.valued.end(), global_valued.begin(), global_valued.end());
      for (const std::string& name : global)
        if (std::find(summary.options.begin(), summary.options.end(), name) == summary.options.end()) summary.options.push_back(name);
      if (const auto found = arguments.find(summary.name); found != arguments.end())
        std::tie(summary.first, summary.second) = found->second;
      all.push_back(summary);
      if (summary.name == "submit") {
        summary.name = "apply";
        all.push_back(summary);
      }
    }
    return all;
  }

  CLI::App app_{"Runs distributed training jobs on this cluster", "dtrainctl"};
  std::function<int(Session&)> action_;
  std::vector<std::string> command_;  // what follows --
  Globals globals_;
  std::string timeout_, kind_, path_, attempt_, since_, drain_deadline_, shell_, names_of_, names_job_;
  bool no_color_ = false;
  FileOptions file_;
  std::string app_config_;
  std::vector<std::string> sets_, params_, labels_, scale_, without_;
  RecoverOptions recover_;
  RunOptions run_;
  SubmitOptions submit_;
  JobsOptions jobs_;
  NamedOptions named_;
  DrainOptions drain_;
  WaitOptions wait_;
  LogsOptions logs_;
  EventsOptions events_;
  TaskSpecsOptions specs_;
  ActionOptions act_;
  CheckpointsOptions checkpoints_;
  ExecOptions exec_;
  KeygenOptions keygen_;
  DoctorOptions doctor_;
};

// Usage errors look like all others, also as JSON; -o may be anywhere, so it is searched for.
int usage_error(const std::vector<std::string>& args, Io& io, const std::string& message, const std::string& next) {
  Globals globals;
  for (std::size_t i = 0; i < args.size(); ++i)
    if (args[i] == "-ojson" || args[i] == "--output=json" ||
        ((args[i] == "-o" || args[i] == "--output") && i + 1 < args.size() && args[i + 1] == "json"))
      globals.format = Format::json;
  return Session(io, globals).report(Failure(Error{ErrorCode::invalid, message, next}));
}

}  // namespace

int run_program(const std::vector<std::string>& all, Io& io) {
  // What follows the first -- is a command for others and never parsed as options of dtrainctl.
  const auto mark = std::find(all.begin(), all.end(), "--");
  std::vector<std::string> args(all.begin(), mark), command(mark == all.end() ? mark : mark + 1, all.end());
  CommandLine line(command);
  const std::string verb = line.verb_of(args);
  const std::vector<std::string> verbs = line.verbs();
  if (!verb.empty() && std::find(verbs.begin(), verbs.end(), verb) == verbs.end()) {
    if (std::find(kLacking.begin(), kLacking.end(), verb) != kLacking.end())
      return usage_error(args, io, "could not run " + verb + ": this version lacks it", "dtrainctl --help shows what it has");
    const std::string near = job::nearest(verb, verbs);
    return usage_error(args, io, "could not run " + verb + ": there is no such verb",
                       near.empty() ? "dtrainctl --help shows all" : "did you mean " + near + "?");
  }
  if (verb != "run" && verb != "exec") args.insert(args.end(), mark, all.end());
  if (args.empty()) {
    io.err << line.app().help();
    return kUsage;
  }
  try {
    std::vector<std::string> reversed(args.rbegin(), args.rend());  // CLI11 takes them from the end
    line.app().parse(reversed);
    Session session(io, line.globals());
    return line.act(session);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return line.app().exit(e, io.out, io.err);  // --help, --version
    // A command that nothing separates from dtrainctl's own options.
    const bool extra =
        mark == all.end() && (verb == "run" || verb == "exec") && e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
    return usage_error(args, io, std::string("could not read the arguments: ") + e.what(),
                       extra ? "a command comes after --: dtrainctl " + verb + (verb == "run" ? " [options]" : " JOB TASK") + " -- CMD..."
                             : "see dtrainctl " + (verb.empty() ? "" : verb + " ") + "--help");
  }
}

}  // namespace dtrain::ctl
