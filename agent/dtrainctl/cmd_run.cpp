#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/follow.h"
#include "agent/dtrainctl/upload.h"
#include "common/job/manifest_input.h"
#include "common/json/answers.h"

namespace dtrain::ctl {
namespace {

constexpr const char* kNoFile = "run";  // mistakes in a command are found as in a job file of this name

// Programs that run another, which says more about the job; and modules (python -m) that do.
constexpr std::array<std::string_view, 17> kRunners{"python",  "pypy",       "bash",     "sh",         "dash",      "zsh",
                                                    "env",     "nice",       "torchrun", "accelerate", "deepspeed", "mpirun",
                                                    "mpiexec", "horovodrun", "uv",       "poetry",     "numactl"};
constexpr std::array<std::string_view, 3> kRunnerModules{"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"};

// "python3.11" is python, too.
bool is_runner(const std::string& program) {
  return std::ranges::count(kRunners, program.substr(0, program.find_last_not_of("0123456789.") + 1)) > 0;
}

bool is_script(const std::string& word) {
  return (word.ends_with(".py") || word.ends_with(".sh")) && !word.starts_with('-') && word.find_first_of("= \t\n") == std::string::npos;
}

// As python names one, and not the value of another program's -m.
bool is_module(const std::string& word) {
  static constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.0123456789";
  return !word.empty() && word.find_first_not_of(kLetters) == std::string::npos && (word[0] < '0' || word[0] > '9') && word.back() != '.';
}

// What a command is called: its program; of a runner the script or the module that it runs, where one is named.
std::string called(const std::vector<std::string>& command) {
  const std::string program = std::filesystem::path(command.front()).filename().string();
  if (!is_runner(program)) return program;
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (is_script(command[i])) return std::filesystem::path(command[i]).stem().string();
    if (command[i] != "-m" || i + 1 == command.size() || is_script(command[i + 1]) || !is_module(command[i + 1])) continue;
    const std::string& module = command[++i];
    if (std::ranges::count(kRunnerModules, module) == 0) return module.substr(module.rfind('.') + 1);
  }
  return program;
}

// A name made from what a command is called: "Train_2" -> "train-2-", completed by the cluster.
std::string name_prefix(const std::string& word) {
  static constexpr std::size_t kPrefixBytes = 40;  // leaves room for what the cluster adds
  std::string name;
  for (const char c : word) {
    if (name.size() == kPrefixBytes) break;
    if (c >= 'A' && c <= 'Z') name.push_back(static_cast<char>(c - 'A' + 'a'));
    else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) name.push_back(c);
    else if (!name.empty() && name.back() != '-') name.push_back('-');
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return (name.empty() ? "job" : name) + "-";
}

Json number_or_word(const std::string& text) {
  const Json number = Json::parse(text, nullptr, false);
  return number.is_number() ? number : Json(text);
}

// Each NAME alone becomes NAME=VALUE, with the value that it has here.
Outcome<void> take_values(std::vector<std::string>& env) {
  for (std::string& variable : env) {
    if (variable.empty() || variable.find('=') != std::string::npos) continue;
    const char* const value = std::getenv(variable.c_str());
    if (value == nullptr)
      return failed(ErrorCode::invalid, "could not pass on variable " + variable + ": it is not set here",
                    "export it, or give its value: --env " + variable + "=VALUE");
    variable += "=" + std::string(value);
  }
  return {};
}

// Where this shell finds the program in an active virtual environment, and a task, whose environment is clean, another.
std::vector<std::string> warnings_of_place(const std::string& program, const job::JobSpec& spec) {
  if (program.find('/') != std::string::npos || !job::image_of(spec).empty() || spec.env.contains("PATH")) return {};
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* const root = std::getenv(variable);
    if (root == nullptr || *root == '\0') continue;
    const std::string there = std::string(root) + "/bin/" + program;
    if (::access(there.c_str(), X_OK) == 0)
      return {program + " is not looked up in the virtual environment " + root + ", which is active here; to use it, give " + there +
              " as the command"};
  }
  return {};
}

// The most GPUs that so many hosts have each.
Outcome<std::uint32_t> gpus_of_hosts(const Session& session, std::uint32_t hosts) {
  const auto reply = session.ask_surely<wire::NodesReply>(wire::MessageType::query_nodes, wire::NodeName{}, wire::MessageType::nodes);
  if (!reply) return failed(reply.error());
  std::vector<std::uint32_t> counts;
  for (const wire::NodeView& node : reply->nodes) counts.push_back(static_cast<std::uint32_t>(node.gpus.total));
  std::ranges::sort(counts, std::greater{});
  const std::uint32_t most = counts.size() < hosts ? 0 : counts[hosts - 1];
  if (most > 0) return most;
  return failed(ErrorCode::invalid,
                "could not run with --nproc-per-node gpu: " +
                    std::string(hosts == 1 ? "no host has" : "fewer than " + std::to_string(hosts) + " hosts have") + " a GPU",
                "dtrainctl nodes shows what the hosts have; --nproc-per-node N starts N ranks on CPUs");
}

}  // namespace

// Written as a job file, so that the same parser fills in the same defaults and finds the same mistakes.
std::string job_file_of(const RunOptions& options, const std::string& directory) {
  const bool pytorch = options.nproc || options.hosts > 0, tensorflow = options.ps > 0 || options.chief;
  Json metadata = Json::object();
  if (options.name.empty()) metadata["generateName"] = name_prefix(called(options.command));
  else metadata["name"] = options.name;
  Json command = Json::array();
  for (const std::string& word : options.command) command.push_back(job::escape_params(word));  // there are no parameters here
  const auto role = [&](std::uint32_t replicas, bool with_gpus) {
    Json r{{"replicas", replicas}, {"command", command}};
    if (with_gpus && options.gpus > 0) r["resources"]["gpus"] = options.gpus;
    if (with_gpus && options.cpus) r["resources"]["cpus"] = *options.cpus;
    if (with_gpus && options.nproc) r["nprocPerNode"] = number_or_word(*options.nproc);
    if (with_gpus && options.hosts > 0) r["antiAffinity"] = "host";
    return r;
  };
  // With a package the tasks begin in it, otherwise in this directory, which all hosts then have.
  const bool sent =
      !options.file.package.empty() || std::ranges::any_of(options.file.sets, [](const auto& set) { return set.first == "spec.package"; });
  Json roles = Json::object();
  if (options.ps > 0) roles["ps"] = role(options.ps, false);
  if (options.chief) roles["chief"] = role(1, true);
  const std::uint32_t workers = options.hosts > 0 ? options.hosts : options.workers;
  if (workers > 0 || roles.empty()) roles["worker"] = role(workers, true);
  Json env = Json::object();
  for (const std::string& variable : options.env) {
    const std::size_t equals = std::min(variable.find('='), variable.size());
    env[variable.substr(0, equals)] = job::escape_params(std::string_view(variable).substr(std::min(equals + 1, variable.size())));
  }
  const Json file{{"apiVersion", "dtrain/v1"},
                  {"kind", "Job"},
                  {"metadata", metadata},
                  {"spec",
                   {{"framework", !options.framework.empty() ? options.framework
                                  : pytorch                  ? "pytorch"
                                  : tensorflow               ? "tensorflow"
                                                             : "generic"},
                    {"workDir", sent ? "." : directory},
                    {"env", env},
                    {"roles", roles}}}};
  return json::text(file, true);
}

int cmd_run(Session& session, const RunOptions& given) {
  RunOptions options = given;
  if (const auto taken = take_values(options.env); !taken) return session.report(taken.error());
  if (options.nproc == "gpu" && options.gpus == 0) {
    const auto gpus = gpus_of_hosts(session, std::max(options.hosts, 1u));
    if (!gpus) return session.report(gpus.error());
    options.gpus = *gpus;
  }
  Outcome<LoadedJob> job;
  if (options.command.empty()) {
    job = load_job(session, options.file);
    if (!job && options.file.file.ends_with(".py"))
      job.error().items.front().next =
          "a script is part of a command, which comes after --: dtrainctl run [options] -- python3 " + options.file.file;
  } else {
    std::error_code wrong;
    const std::filesystem::path here = std::filesystem::current_path(wrong);
    if (wrong)
      return session.report(Failure(
          Error{ErrorCode::invalid, "could not tell the current directory: " + wrong.message(), "change to a directory that exists"}));
    job = parse_job(session, job_file_of(options, here.string()), kNoFile, options.file, here.string());
    // There is no such file with lines to point to.
    if (!job)
      for (wire::ErrorItem& item : job.error().items)
        if (item.file == kNoFile) item.file.clear(), item.line = 0;
    if (job) session.warn(warnings_of_place(options.command.front(), job->spec));
  }
  if (!job) return session.report(job.error());
  auto submitted = submit_job(session, std::move(*job), options.replace);
  if (!submitted) return session.report(submitted.error());
  if (submitted->unchanged) {
    // The logs of a finished run are no new run, and its success is not reported anew.
    const auto ended = ended_state(session, *submitted);
    if (!ended) return session.report(ended.error());
    session.note("job " + submitted->name + ": " + unchanged_text(submitted->name, *ended, options.detach ? "" : "; following it"));
    if (!ended->empty() && !options.detach) return *ended == "Succeeded" ? kDone : kJobFailed;
  }
  if (options.detach) {
    session.show(json::of(*submitted), [&] { return submitted->name + "\n"; });
    return kDone;
  }
  FollowOptions follow;
  follow.job = submitted->name;
  follow.id = submitted->id;
  follow.cancel_on_exit = options.cancel_on_exit;
  follow.raw = options.raw;
  return follow_job(session, follow);
}

}  // namespace dtrain::ctl
