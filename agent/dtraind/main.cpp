// dtraind: the agent. docs/agent.md
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "agent/dtraind/daemon.h"
#include "agent/dtraind/hardware.h"
#include "agent/dtraind/options.h"
#include "agent/dtraind/start.h"
#include "agent/dtraind/start_backoff.h"
#include "agent/host/facts.h"
#include "agent/proc/scheduling.h"
#include "agent/proc/shim_runner.h"
#include "agent/store/file.h"

#ifndef DTRAIN_LEDGER_KNOWS  // another version only in the program that tests of upgrades give to a host (cmake/tests.cmake)
#define DTRAIN_LEDGER_KNOWS cluster::kNewestVersion
#endif

namespace dtrain::daemon {
namespace {

int report(const Failure& failure) {
  std::fprintf(stderr, "dtraind: %s\n", failure.error.text().c_str());
  return failure.exit_code;
}

Start<Config> configure(const CommandLine& line) {
  auto loaded = load_config(line.config_file, line.sets);
  if (!loaded) return give_up(loaded.error().code == ErrorCode::not_found ? EX_NOINPUT : EX_CONFIG, loaded.error());
  for (std::size_t i = 0; i + 1 < loaded->errors.size(); ++i) std::fprintf(stderr, "dtraind: %s\n", loaded->errors[i].text().c_str());
  if (!loaded->errors.empty()) return give_up(EX_CONFIG, Error{ErrorCode::invalid, loaded->errors.back().text(), ""});
  loaded->config.dev = line.dev;
  return std::move(loaded->config);
}

Start<std::unique_ptr<proc::Runner>> make_runner(const Config& config, const Layout& layout, const std::string& shim,
                                                 const std::string& warm, const std::string& rsh, const node::NodeFacts& facts, Log& log) {
  proc::RunnerOptions options;
  options.variables["DTRAIN_AGENT"] = layout.control_socket();
  if (!rsh.empty()) options.variables["DTRAIN_RSH"] = rsh;
  if (config.tasks.standbys) options.warm_path = warm;
  options.tasks_dir = layout.tasks();
  options.shim_path = shim;
  options.work_root = layout.work;
  options.cgroup = config.tasks.cgroup;
  options.log_file_bytes = config.tasks.log_file_bytes;
  options.log_files = config.tasks.log_files;
  options.ulimits = config.tasks.ulimits;
  options.devices = config.tasks.devices;
  options.image_engine = facts.image_program.empty() ? "" : facts.images;
  options.image_program = facts.image_program;
  options.warn = [&log](const Error& error) {
    log.write(LogLevel::warn, "tasks.warning", {{"warning", error.message}, {"next", error.next}});
  };
  const bool may = config.tasks.launch == Launch::automatic && !config.dev && proc::systemd_is_here();
  if (may || config.tasks.launch == Launch::systemd) {
    auto runner = proc::make_runner(options, {proc::systemd_launcher});
    if (runner) return std::move(*runner);
    if (!may || runner.error().code != ErrorCode::unavailable)
      return give_up(runner.error().code == ErrorCode::unavailable ? EX_UNAVAILABLE : EX_OSERR, runner.error());
    options.warn(runner.error());
  }
  auto runner = proc::make_runner(std::move(options), {proc::direct_launcher});
  if (!runner) return give_up(EX_OSERR, runner.error());
  return std::move(*runner);
}

void print_dev_help(const Layout& layout) {
  std::fprintf(stderr,
               "dtraind: a cluster of this one node, for trying out. In another terminal:\n\n"
               "    export DTRAIN_AGENT=%s\n    dtrainctl status\n\n",
               layout.control_socket().c_str());
}

void clean_up_dev(const Layout& layout, bool all_tasks_gone) {
  if (layout.temporary.empty()) return;
  if (all_tasks_gone) {
    (void)store::remove_tree(layout.temporary);
    return;
  }
  std::fprintf(stderr, "dtraind: tasks run on; to go on with them: dtraind --dev --data-dir %s --run-dir %s\n", layout.data.c_str(),
               layout.run.c_str());
}

int run_agent(const CommandLine& line, const Config& config, loop::Signals& signals, loop::ServiceManager& manager, LogSink& log) {
  auto layout = choose_layout(config);
  if (!layout) return report(layout.error());
  // Nothing of --dev is kept if it did not even start.
  const auto start_failed = [&](const Failure& failure) {
    clean_up_dev(*layout, true);
    return report(failure);
  };
  auto shim = find_helper("dtrain-shim", X_OK), warm = find_helper("dtrain-warm.py", R_OK), rsh = find_helper("dtrain-rsh", X_OK);
  if (!shim) return start_failed(shim.error());
  // Tasks start without standbys as well.
  if (!warm && config.tasks.standbys)
    log.write(LogLevel::warn, "tasks.warning", {{"warning", warm.error().error.message}, {"next", warm.error().error.next}});
  if (!rsh) log.write(LogLevel::warn, "tasks.warning", {{"warning", rsh.error().error.message}, {"next", rsh.error().error.next}});
  proc::become_urgent();  // before it has threads and helpers, which inherit the priority
  auto prepared = prepare(config, *layout, DTRAIN_VERSION, log);
  if (!prepared) return start_failed(prepared.error());
  auto runner = make_runner(config, *layout, *shim, warm.value_or(""), rsh.value_or(""), prepared->facts, log);
  if (!runner) return start_failed(runner.error());
  const auto seed = host::random_seed();
  if (!seed) return start_failed(Failure{EX_OSERR, seed.error()});
  const auto make_decider = [&, cluster_id = prepared->state.cluster_id](Log& sink) {
    node::NodeOptions options = node_options(config, cluster_id, DTRAIN_VERSION);
    options.ledger_knows = DTRAIN_LEDGER_KNOWS;
    return std::make_unique<NodeDecider>(std::move(options), Rng(*seed), sink);
  };
  auto daemon = Daemon::create(config, std::move(*prepared), std::move(*runner), make_decider, log, DTRAIN_VERSION);
  if (!daemon) return start_failed(daemon.error());
  if (config.dev) print_dev_help(*layout);
  const int code = (*daemon)->run(
      signals, [&line] { return load_config(line.config_file, line.sets); }, manager);
  const bool all_tasks_gone = (*daemon)->all_tasks_gone();
  daemon->reset();
  clean_up_dev(*layout, all_tasks_gone);
  return code;
}

int run_program(int argc, char** argv) {
  ::mallopt(M_ARENA_MAX, 1);               // two threads share one heap: a second heap would cost more than it saves
  ::mallopt(M_TRIM_THRESHOLD, 4 << 20);    // free memory serves the next burst; Housekeeping gives it back
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);  // snapshots and packages come and go as a whole, and leave no holes
  const auto line = parse_command_line(argc, argv);
  if (!line) return report(Failure{EX_USAGE, line.error()});
  if (line->help) return std::fputs(usage_text().c_str(), stdout) < 0 ? EX_IOERR : EX_OK;
  if (line->version) return std::puts("dtraind " DTRAIN_VERSION) < 0 ? EX_IOERR : EX_OK;
  const StartBackoff backoff = line->check_config ? StartBackoff("") : StartBackoff::of_service();
  if (!backoff.wait(backoff.begin())) return EX_OK;
  auto config = configure(*line);
  if (!config) return report(config.error());
  if (line->check_config) {
    if (auto readable = check_topology(*config); !readable) return report(readable.error());
    return std::puts("the configuration is valid") < 0 ? EX_IOERR : EX_OK;
  }
  ::signal(SIGPIPE, SIG_IGN);
  // Before the disk worker starts, so that it inherits the mask.
  auto signals = loop::Signals::open({SIGTERM, SIGINT, SIGHUP});
  if (!signals) return report(Failure{EX_OSERR, signals.error()});
  LogSink log(STDERR_FILENO, config->log_level);
  auto manager = loop::ServiceManager::from_environment();
  return run_agent(*line, *config, *signals, manager, log);
}

}  // namespace
}  // namespace dtrain::daemon

int main(int argc, char** argv) { return dtrain::daemon::run_program(argc, argv); }
