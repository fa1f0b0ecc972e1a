#include "agent/dtraind/daemon.h"

#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "agent/dtraind/start_backoff.h"
#include "agent/net/user_names.h"
#include "agent/proc/old_logs.h"
#include "agent/proc/task_of_process.h"
#include "agent/store/disk_failure.h"
#include "common/job/quantity.h"

namespace dtrain::daemon {
namespace {

Failure os_failure(const Error& error) { return Failure{EX_OSERR, error}; }

}  // namespace

Daemon::Daemon(Config config, Prepared prepared, LogSink& log, std::string version)
    : config_(std::move(config)),
      prepared_(std::move(prepared)),
      log_(log),
      version_(std::move(version)),
      housekeeping_(log),
      reserve_(prepared_.layout.reserve()) {
  if (prepared_.gpu_watch) device_root_ = prepared_.gpu_watch->root;
}

Daemon::~Daemon() {
  // Work in progress refers to the adapters: it ends first, and none of its completions are delivered any more.
  door_.reset();
  control_.reset();
  worker_.reset();
}

Start<std::unique_ptr<Daemon>> Daemon::create(Config config, Prepared prepared, std::unique_ptr<proc::Runner> runner,
                                              const MakeDecider& make_decider, LogSink& log, std::string version) {
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(config), std::move(prepared), log, std::move(version)));
  if (auto opened = daemon->open_adapters(std::move(runner)); !opened) return tl::unexpected<Failure>(opened.error());
  daemon->decider_ = make_decider(log);
  return daemon;
}

Status Daemon::add_source(int fd, std::function<Instant()> deadline, std::function<void()> dispatch) {
  sources_.push_back({std::move(deadline), dispatch});
  if (fd < 0) return {};
  return loop_->watch(fd, EPOLLIN, [this, dispatch = std::move(dispatch)](std::uint32_t) {
    dispatch();
    drain();  // at once: what follows from an exit must not wait for the other descriptors of this turn
  });
}

Start<void> Daemon::open_adapters(std::unique_ptr<proc::Runner> runner) {
  runner_ = std::move(runner);
  auto poll_loop = loop::Loop::open();
  if (!poll_loop) return tl::unexpected(os_failure(poll_loop.error()));
  loop_ = std::move(*poll_loop);
  auto worker = store::DiskWorker::start();
  if (!worker) return tl::unexpected(os_failure(worker.error()));
  worker_ = std::move(*worker);
  stager_ = std::move(prepared_.stager);
  for (auto* runner_of : {&hooks_, &host_hooks_}) {
    auto hooks = runner_of == &hooks_ ? proc::HookRunner::open(proc::kNotifyTime, hook_groups()) : proc::HookRunner::open();
    if (!hooks) return tl::unexpected(os_failure(hooks.error()));
    *runner_of = std::move(*hooks);
  }
  auto logs = proc::LogStreams::open(prepared_.layout.tasks());
  if (!logs) return tl::unexpected(os_failure(logs.error()));
  logs_ = std::make_unique<proc::LogStreams>(std::move(*logs));
  blob_streams_ =
      std::make_unique<BlobStreams>(*prepared_.blobs, sinks_, [this](store::DiskWorker::Work work) { post_bulk(std::move(work)); });
  const store::CopyOwner copies{prepared_.state.node, prepared_.state.life};
  checkpoint_streams_ = std::make_unique<CheckpointStreams>(
      sinks_, [this](store::DiskWorker::Work work) { post_bulk(std::move(work)); }, [this](node::Event event) { queue(std::move(event)); },
      store::CopyOptions{copies, {config_.storage.min_free.percent, config_.storage.min_free.bytes}});
  auto execs = proc::ExecSessions::open();
  if (!execs) return tl::unexpected(os_failure(execs.error()));
  execs_ = std::make_unique<proc::ExecSessions>(std::move(*execs));

  committer_ = std::make_unique<store::Committer>(
      *prepared_.store, *worker_, log_,
      [this](std::uint64_t ticket, const Status& result) {
        if (result) return queue(node::Persisted{ticket});
        if (!storage_failed_)
          if (const auto noted = store::note_disk_failure(prepared_.layout.run, prepared_.boot_id); !noted)
            log_.write(LogLevel::error, "disk.not-noted",
                       {{"error", noted.error().text()}, {"next", "reboot the machine before the agent starts again"}});
        storage_failed_ = result.error();
        queue(node::PersistFailed{ticket, result.error()});
      },
      &reserve_);
  store::CheckpointStoreOptions options;
  options.bytes_per_second = config_.storage.checkpoint_rate;
  options.copies = copies;
  checkpoints_ = std::make_unique<store::CheckpointStore>(
      [this](std::function<void()> work, std::function<void()> done) {
        post_bulk([work = std::move(work), done = std::move(done)] {
          work();
          return done;
        });
      },
      log_, options);

  auto examiner = host::Examiner::open();
  if (!examiner) return tl::unexpected(os_failure(examiner.error()));
  examiner_ = std::move(*examiner);

  std::vector<std::string> disks{prepared_.layout.data};
  if (!prepared_.layout.work.starts_with(prepared_.layout.data + "/")) disks.push_back(prepared_.layout.work);
  housekeeping_.watch_disks(std::move(disks), [this](node::DiskSeen seen) { queue(node::DiskLooked{std::move(seen)}); });

  const auto now = [this] { return loop_->now().boot; };
  const auto never = [] { return kNever; };
  const auto sink = [this] { return proc::EventSink([this](node::Event event) { queue(std::move(event)); }); };
  Status added;
  const auto add = [&](int fd, std::function<Instant()> deadline, std::function<void()> dispatch) {
    if (added) added = add_source(fd, std::move(deadline), std::move(dispatch));
  };
  // The runner first: exits are the most urgent.
  add(
      runner_->fd(), [this] { return runner_->deadline(); }, [this, to = sink()]() mutable { runner_->dispatch(to); });
  add(worker_->fd(), never, [this] { worker_->dispatch(); });
  add(
      stager_->fd(), [this] { return stager_->deadline(); }, [this, now, to = sink()]() mutable { stager_->dispatch(now(), to); });
  for (proc::HookRunner* hooks : {hooks_.get(), host_hooks_.get()})
    add(
        hooks->fd(), [hooks] { return hooks->deadline(); }, [hooks, now, to = sink()]() mutable { hooks->dispatch(now(), to); });
  add(
      checkpoints_->fd(), [this] { return checkpoints_->deadline(); },
      [this, now, to = sink()]() mutable { checkpoints_->dispatch(now(), to); });
  add(logs_->fd(), never, [this] { logs_->dispatch(sinks_); });
  add(
      -1, [this] { return relays_.deadline(); }, [this, now] { relays_.dispatch(now()); });
  add(examiner_->fd(), never, [this] {
    examiner_->dispatch([this](std::uint64_t token, Result<node::Examination> seen) {
      queue(seen ? node::Examined{token, std::move(*seen), std::nullopt} : node::Examined{token, {}, seen.error()});
    });
  });
  add(
      execs_->fd(), [this] { return execs_->deadline(); }, [this, now] { execs_->dispatch(now(), sinks_); });
  if (!added) return tl::unexpected(os_failure(added.error()));
  return {};
}

// Hooks are users' programs, like tasks: they get groups of their own, not the agent's.
proc::Cgroups Daemon::hook_groups() {
  const std::string name = proc::cgroup_name_of(prepared_.layout.tasks());
  proc::Cgroups groups = name.empty() ? proc::Cgroups() : proc::Cgroups::open(config_.tasks.cgroup, name + ".hooks");
  if (groups.v2().empty() || ::geteuid() != 0) return groups;
  if (const auto closed = proc::close_devices(groups.v2()); !closed)
    log_.write(LogLevel::warn, "hooks.warning", {{"warning", closed.error().message}, {"next", closed.error().next}});
  return groups;
}

void Daemon::queue(node::Event event) { events_.push_back(std::move(event)); }

void Daemon::drain() {
  for (std::size_t i = 0; i < kDecisionsPerTurn && !events_.empty(); ++i) {
    const node::Event event = std::move(events_.front());
    events_.pop_front();
    note(event);
    effects_.clear();
    decider_->step(loop_->now(), event, effects_);
    for (node::Effect& effect : effects_) perform(effect);
  }
  effects_.clear();
}

Status Daemon::turn(Instant limit) {
  Instant deadline = std::min(limit, committer_->deadline());
  deadline = std::min(deadline, decider_->deadline());
  for (const Source& source : sources_) deadline = std::min(deadline, source.deadline());
  if (!events_.empty()) deadline = Instant{};
  if (auto waited = loop_->turn(deadline); !waited) return waited;
  housekeeping_.turn(loop_->now());
  remove_old_logs();
  const Instant now = loop_->now().boot;
  for (const Source& source : sources_)
    if (source.deadline() <= now) source.dispatch();
  if (decider_->deadline() <= now) queue(node::Tick{});
  drain();
  for (const auto& [connection, input] : std::exchange(exec_inputs_, {}))
    if (!relays_.input(connection, input)) execs_->input(now, connection, input);
  post_deferred();
  committer_->flush(loop_->now());
  return {};
}

Status Daemon::watch_gpus() {
  if (!prepared_.gpu_watch) return {};
  host::GpuWatch::Sinks sinks;
  sinks.sampled = [this](std::vector<node::GpuSample> gpus) { queue(node::GpusSampled{std::move(gpus)}); };
  sinks.faulted = [this](node::GpuFault fault) { queue(node::GpuFaulted{std::move(fault)}); };
  sinks.failed = [this](const Error& error) {
    log_.write(LogLevel::warn, "hardware.warning", {{"warning", error.message}, {"next", error.next}});
  };
  auto watch = host::GpuWatch::open(std::move(*prepared_.gpu_watch), std::move(sinks));
  if (!watch) return fail(watch.error());
  gpu_watch_ = std::move(*watch);
  return add_source(
      gpu_watch_->fd(), [this] { return gpu_watch_->deadline(); }, [this] { gpu_watch_->dispatch(loop_->now().boot); });
}

Status Daemon::watch_health() {
  auto check = proc::HealthCheck::open();
  if (!check) return fail(check.error());
  health_check_ = std::move(*check);
  configure_health_check();
  return add_source(
      health_check_->fd(), [this] { return health_check_->deadline(); },
      [this, sink = proc::EventSink([this](node::Event event) { queue(std::move(event)); })]() mutable {
        health_check_->dispatch(loop_->now().boot, sink);
      });
}

void Daemon::configure_health_check() {
  if (!health_check_) return;  // a signal while tasks are being adopted
  const auto& wanted = config_.health_check;
  health_check_->configure(loop_->now().boot, {wanted.command, wanted.every, wanted.timeout, prepared_.facts.name});
}

// Runs beside the loop, and not before it is known which assignments live.
void Daemon::remove_old_logs() {
  const Duration keep = config_.tasks.log_keep_for;
  if (keep == Duration{0} || !control_ || loop_->now().boot < next_log_look_) return;
  next_log_look_ = loop_->now().boot + std::clamp<Duration>(keep, 1s, kLogLookEvery);
  const WallTime before = loop_->now().wall - std::chrono::duration_cast<std::chrono::milliseconds>(keep);
  post_bulk([tasks = prepared_.layout.tasks(), before, living = shims_] {
    proc::remove_old_logs(tasks, before, living);
    return store::DiskWorker::Done{};
  });
}

// Running tasks must be known and their shims connected before any client is answered.
Status Daemon::adopt() {
  node::Started started;
  started.life = prepared_.state.life;
  started.facts = prepared_.facts;
  started.replica = std::move(prepared_.state.replica);
  started.task_records = std::move(prepared_.state.task_records);
  started.shims = runner_->list();
  started.members = prepared_.members;
  prepared_.state = {};
  for (const task::FoundShim& shim : started.shims)
    if (shim.shim_alive) shims_.insert(shim.id);
  log_.write(LogLevel::info, "agent.adopted",
             {{"assignments", std::to_string(started.shims.size())}, {"alive", std::to_string(shims_.size())}});
  queue(std::move(started));
  drain();
  committer_->flush(loop_->now());
  // The agent starts to answer even if the disk is full.
  while (!committer_->idle() && !committer_->disk_full() && !storage_failed_)
    if (auto done = turn(kNever); !done) return done;
  return {};
}

Status Daemon::open_control() {
  auto control =
      net::ControlServer::listen(prepared_.layout.control_socket(), {}, [this](pid_t pid) -> Result<std::optional<AssignmentId>> {
        if (!proc::runs_in_task(pid, prepared_.layout.tasks())) return std::nullopt;
        auto task = runner_->task_of(pid);
        if (!task)
          return fail(ErrorCode::refused, "could not serve this connection: it comes from inside a task, and from which cannot be told",
                      "call dtrainctl from a login shell");
        return task;
      });
  if (!control) return fail(control.error());
  control_ = std::move(*control);
  return add_source(
      control_->fd(), [this] { return control_->deadline(); }, [this] { control_->dispatch(loop_->now().boot, *this); });
}

void Daemon::log_ready() {
  const node::NodeFacts& facts = prepared_.facts;
  if (!prepared_.members.waiting_for.empty())
    log_.write(LogLevel::warn, "agent.waiting", {{"node", facts.name}, {"for", prepared_.members.waiting_for}});
  log_.write(LogLevel::info, "agent.ready",
             {{"node", facts.name},
              {"id", facts.id},
              {"address", facts.address},
              {"version", version_},
              {"cluster", config_.cluster.name},
              {"control", prepared_.layout.control_socket()},
              {"data", prepared_.layout.data}});
}

int Daemon::run(loop::Signals& signals, const Reload& reload, loop::ServiceManager& manager) {
  const auto broken = [this](const Error& error) {
    log_.write(LogLevel::error, "agent.failed", {{"error", error.text()}});
    return EX_OSERR;
  };
  if (auto watched = loop_->watch(signals.fd(), EPOLLIN, [&](std::uint32_t) { handle_signals(signals, reload); }); !watched)
    return broken(watched.error());
  if (auto adopted = adopt(); !adopted) return broken(adopted.error());
  if (auto watched = watch_gpus(); !watched) return broken(watched.error());
  if (auto watched = watch_health(); !watched) return broken(watched.error());
  if (storage_failed_) return fail_storage();
  auto opened = open_network();
  if (opened) opened = open_control();
  if (opened) opened = open_door();
  if (!opened) {
    log_.write(LogLevel::error, "agent.failed", {{"error", opened.error().text()}});
    return opened.error().code == ErrorCode::unavailable ? EX_UNAVAILABLE : EX_OSERR;
  }
  if (auto added = add_source(
          -1, [&manager] { return manager.deadline(); }, [this, &manager] { manager.tell(loop_->now().boot, decider_->status_line()); });
      !added)
    return broken(added.error());
  log_ready();
  manager.ready(loop_->now().boot, decider_->status_line());
  StartBackoff::of_service().ready();
  while (!stopping_ && !storage_failed_)
    if (auto done = turn(kNever); !done) return broken(done.error());
  return storage_failed_ ? fail_storage() : stop(manager);
}

void Daemon::handle_signals(loop::Signals& signals, const Reload& reload) {
  while (const auto signal = signals.next()) {
    if (signal->number == SIGHUP) reload_config(reload, signal->uid);
    else stopping_ = true;
  }
}

void Daemon::reload_config(const Reload& reload, std::uint32_t uid) {
  auto loaded = reload();
  if (!loaded || !loaded->errors.empty()) {
    const std::string cause = loaded ? loaded->errors.front().text() : loaded.error().text();
    log_.write(LogLevel::error, "config.rejected",
               {{"error", cause}, {"next", "the old one stays in force; correct it and send SIGHUP again"}});
    return;
  }
  if (!reload_key(loaded->config)) return;
  config_.node.labels = loaded->config.node.labels;
  config_.access = loaded->config.access;
  config_.client_keys = loaded->config.client_keys;
  reload_door();
  node::Reconfigured changed;
  changed.labels = config_.node.labels;
  changed.access = config_.access;
  changed.by = {net::look_up_user(uid).value_or(""), uid};
  config_.health_check = loaded->config.health_check;
  changed.health_check = !config_.health_check.command.empty();
  configure_health_check();
  if (prepared_.keys) changed.key_print = net::key_print(prepared_.keys->pairs.front().public_key);
  queue(std::move(changed));
  config_.log_level = loaded->config.log_level;
  log_.set_level(config_.log_level);
  log_.write(LogLevel::info, "config.reloaded", {});
}

std::string Daemon::how_to_end_tasks() const {
  const std::string& cgroup = config_.tasks.cgroup;
  const std::string how = "dtrainctl cancel JOB at a node of the cluster";
  return cgroup.ends_with(".service") ? how + ", or here systemctl stop " + cgroup.substr(cgroup.rfind('/') + 1) : how;
}

std::string advice_at_stop(const Config& config, const std::string& node, bool among_others) {
  const std::string next = "start the agent again to go on with them";
  if (!among_others) return next;
  return next + "; those under a lease stand still after " + job::format_duration(config.timing.lease) + " and are begun elsewhere after " +
         job::format_duration(config.timing.agent_grace) + "; before a longer stop: dtrainctl drain " + node + " --wait";
}

int Daemon::stop(loop::ServiceManager& manager) {
  manager.stopping(shims_.empty() ? "stopped; nothing runs here"
                                  : "stopped; " + std::to_string(shims_.size()) + " tasks run on; to end them: " + how_to_end_tasks());
  said_something_ = false;
  queue(node::Stopping{});
  drain();
  committer_->flush(loop_->now());
  const Instant limit = loop_->now().boot + kStopPatience;
  const Instant said = loop_->now().boot + (said_something_ ? kGoodbye : Duration{0});
  const auto done = [&] { return committer_->idle() && !saving_members_ && control_->flushed() && events_.empty(); };
  while (loop_->now().boot < limit && !storage_failed_ && !(done() && loop_->now().boot >= said))
    if (!turn(done() ? said : limit)) break;
  if (storage_failed_) return fail_storage();
  if (door_) door_->dispatch(loop_->now().boot);  // the last replies to clients of other machines
  std::string next = "nothing runs";
  if (!shims_.empty())
    next = advice_at_stop(config_, prepared_.facts.name, decider_->among_others()) + "; to end them: " + how_to_end_tasks();
  log_.write(LogLevel::info, "agent.stopped",
             {{"node", prepared_.facts.name}, {"running_assignments", std::to_string(shims_.size())}, {"next", next}});
  return EX_OK;
}

// A failed disk is fatal to the agent, never to the tasks.
int Daemon::fail_storage() {
  drain();  // Node knows of it, and answers the requests that wait
  if (control_) control_->dispatch(loop_->now().boot, *this);
  log_.write(
      LogLevel::error, "store.failed",
      {{"error", storage_failed_->text()}, {"next", "the tasks run on; repair the disk, then start the agent again: it adopts them"}});
  return EX_IOERR;
}

}  // namespace dtrain::daemon
