#include "agent/proc/tracked_shim.h"

#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "agent/base/small_file.h"
#include "agent/proc/error_files.h"
#include "agent/proc/leftover.h"
#include "agent/proc/port_check.h"

namespace dtrain::proc {

namespace {

constexpr Duration kGreetingBound = 10s;   // from launch to the first answer; then it is killed
constexpr Duration kLostBound = 10s;       // alive but not connectable
constexpr Duration kFirstShimPause = 2ms;  // between looks; doubled
constexpr Duration kLastShimPause = 200ms;
constexpr int kPacketsPerTurn = 64;
// An attempt that fails within this time may have failed because of its port. After a longer time it had the port,
// and another process took it since.
constexpr std::chrono::seconds kPortProof{10};

}  // namespace

// ---------------------------------------------------------------- beginning

void TrackedShim::launched(ShimProcess process, const LaunchFile& launch, Instant now) {
  launch_ = launch;
  lease_.of(launch.cgroup, launch.notify);
  link_ = ShimLink(std::move(process.socket));
  pidfd_ = std::move(process.pidfd);
  path_room_ = process.path_room;
  stays_ = false;
  launching_ = true;
  answer_waits_ = !pidfd_;
  end_asked_ = false;
  obey_by_ = kNever;
  launch_error_.reset();
  last_ = {};
  last_.fixed.attempt = launch.last_attempt;
  if (pidfd_) poller_.add(pidfd_.get(), handle_ * kTags + kPidTag);
  if (!greet(now)) give_up_launch("its first connection takes nothing", now);
}

void TrackedShim::launch_answered(std::optional<Error> refusal, Instant now) {
  if (!launching_ || !answer_waits_) return;
  answer_waits_ = false;
  if (refusal) launch_error_ = std::move(refusal);
  if (launch_error_ || !link_) bury(now);
}

// The shim must have greeted by now. Its death is reported through its pidfd; if another process started it, its
// launcher sees to that.
void TrackedShim::give_up_launch(const std::string& cause, Instant now) {
  if (!launch_error_) launch_error_ = unavailable("launch the shim of", cause);
  if (pidfd_) return kill_process(pidfd_);
  bury(now);
}

void TrackedShim::launch_refused(Error error) { events_.push_back(node::ShimUp{id_, tl::unexpected(std::move(error))}); }

void TrackedShim::adopt(const LaunchFile& launch, Instant now) {
  launch_ = launch;
  adopting_ = true;
  give_up_ = kNever;
  last_.fixed.attempt = launch.last_attempt;
  // The end of its lease comes first: the shim may be stopped, and send nothing.
  lease_.of(launch.cgroup, launch.notify);
  if (const auto state = read_record(directory_, shim::kStateFile)) lease_.told(*state);
  connect_again(now);
}

bool TrackedShim::greet(Instant now) {
  life_ = Life::greeting;
  deadline_ = now + kGreetingBound;
  poller_.add(link_.fd(), handle_ * kTags + kSocketTag);
  return link_.send(shim::Command::hello, shim::kOldestVersion, shim::kVersion) != 0;
}

void TrackedShim::connect_again(Instant now) {
  link_ = ShimLink::connect(directory_);
  const int cause = errno;
  if (link_ && greet(now)) {
    pause_ = {};
    return;
  }
  link_.close();
  // Refused: nobody listens. If the process is still alive, it is about to end.
  if (cause != EAGAIN && (!pidfd_ || is_dead(pidfd_))) return bury(now);
  if (life_ != Life::lost) give_up_ = now + kLostBound;
  life_ = Life::lost;
  if (now >= give_up_) kill_process(pidfd_);
  pause_ = std::clamp(pause_ * 2, kFirstShimPause, kLastShimPause);
  deadline_ = now + pause_;
}

// ---------------------------------------------------------------- packets

void TrackedShim::socket_ready(Instant now) {
  for (int i = 0; i < kPacketsPerTurn && link_; ++i) {
    ShimLink::Received received = link_.receive();
    if (std::holds_alternative<ShimLink::Nothing>(received)) return;
    if (std::holds_alternative<ShimLink::Closed>(received)) {
      link_.close();
      if (launching_ && answer_waits_) return;  // the answer gives the reason
      reconnected_ = true;
      return connect_again(now);
    }
    if (const auto* reply = std::get_if<shim::ReplyPacket>(&received)) on_reply(*reply);
    else if (const auto* ask = std::get_if<shim::AskPacket>(&received)) on_ask(*ask);
    else on_record(std::get<ShimRecord>(std::move(received)));
    if (stays_) return left(now);
  }
}

// Nothing of it touches the assignment any more: for the assignment it is as good as dead.
void TrackedShim::left(Instant now) {
  poller_.remove(link_.fd());
  poller_.remove(pidfd_.get());
  ShimProcess shim{link_.release(), std::move(pidfd_), path_room_};
  // One that a former release of the agent started would not understand all of the next launch file.
  if (last_.fixed.version < shim::kVersion) spare_.dismiss(std::move(shim), now);
  else spare_.keep(std::move(shim), now);
  bury(now);
}

void TrackedShim::on_reply(const shim::ReplyPacket& reply) {
  const auto outcome = static_cast<shim::Outcome>(reply.outcome);
  if (reply.command == static_cast<std::uint16_t>(shim::Command::hello)) {
    if (outcome == shim::Outcome::done) return;  // the record that follows is what counts
    static constexpr const char* kSteps[] = {"enter its directory", "become a daemon",  "read its launch file", "join its cgroups",
                                             "open its files",      "open its sockets", "begin its lease"};
    const std::string cause =
        outcome == shim::Outcome::wrong_version
            ? "it speaks another version of the protocol"
            : std::string("it could not ") + kSteps[std::min(std::size_t{reply.a}, std::size(kSteps) - 1)] + ": " + cause_of(reply.error);
    launch_error_ = unavailable("launch the shim of", cause);
    return;
  }
  if (reply.command == static_cast<std::uint16_t>(shim::Command::end)) {
    stays_ = outcome == shim::Outcome::done && reply.a == 1 && pidfd_;
    return;
  }
  if (reply.command == static_cast<std::uint16_t>(shim::Command::kill)) {
    if (reply.sequence == kill_sequence_) obey_by_ = kNever;
    return;
  }
  const auto found = pending_.find(reply.sequence);
  if (found == pending_.end()) return;
  const Pending pending = found->second;
  pending_.erase(found);
  if (pending.command == shim::Command::start) return started_reply(pending.argument, reply);
  const bool freeze = pending.argument != 0;
  if (outcome == shim::Outcome::done) {
    events_.push_back(node::FreezeDone{id_, freeze, {}});
    return;
  }
  const std::string cause = outcome == shim::Outcome::no_attempt ? "no attempt runs"
                            : reply.error == ETIMEDOUT           ? "it did not stop in time and was killed"
                                                                 : cause_of(reply.error);
  events_.push_back(node::FreezeDone{id_, false, tl::unexpected(unavailable(freeze ? "freeze" : "thaw", cause))});
}

// The shim may die, or be stopped, before its record shows it: the exit of an attempt that is known to have begun is
// reported all the same.
void TrackedShim::note_started(AttemptNumber attempt, const shim::ReplyPacket& reply) {
  last_.fixed.attempt = attempt;
  last_.fixed.phase = static_cast<std::uint8_t>(shim::Phase::running);
  last_.fixed.pid = reply.pid;
  last_.fixed.started_ns = reply.started_ns;
  last_.fixed.flags &= shim::kLeased | shim::kHostStops;
  last_.fixed.watchdogs = last_.fixed.statuses = 0;
  last_.status.clear();
  last_.tail.clear();
}

void TrackedShim::started_reply(AttemptNumber attempt, const shim::ReplyPacket& reply) {
  const std::string what = "start attempt " + std::to_string(attempt) + " of";
  switch (static_cast<shim::Outcome>(reply.outcome)) {
    case shim::Outcome::done:
    case shim::Outcome::already:
      if (attempt > last_.fixed.attempt) note_started(attempt, reply);
      events_.push_back(node::AttemptStarted{id_, attempt, reply.pid, wall_time(reply.started_ns)});
      return;
    case shim::Outcome::attempt_too_low:
      return refuse_start(
          attempt, {ErrorCode::refused,
                    "could not " + what + " " + id_.text() + ": attempt " + std::to_string(reply.attempt) + " was started before", ""});
    case shim::Outcome::attempt_ended:
      return refuse_start(attempt, {ErrorCode::refused, "could not " + what + " " + id_.text() + ": it has run and ended", ""});
    case shim::Outcome::busy:
      return refuse_start(attempt, unavailable(what, "attempt " + std::to_string(reply.attempt) + " has not ended"));
    case shim::Outcome::withdrawn: return refuse_start(attempt, unavailable(what, "it was stopped before its lease was granted"));
    case shim::Outcome::superseded:
      return refuse_start(attempt, {ErrorCode::refused, "could not " + what + " " + id_.text() + ": it was superseded", ""});
    default: return refuse_start(attempt, unavailable(what, cause_of(reply.error)));
  }
}

void TrackedShim::watch_process(pid_t pid) {
  if (pid > 0) pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd_) poller_.add(pidfd_.get(), handle_ * kTags + kPidTag);
}

void TrackedShim::on_record(ShimRecord record) {
  if (!pidfd_) watch_process(record.fixed.shim_pid);
  if (launching_ && launch_.lease > Duration{0} && !record.has(shim::kLeased)) {
    launch_error_ = unavailable("launch the shim of", "dtrain-shim is older than dtraind and knows no leases");
    return kill_process(pidfd_);
  }
  lease_.told(record);
  if (life_ == Life::greeting) {
    life_ = Life::up;
    deadline_ = kNever;
    if (launching_) events_.push_back(node::ShimUp{id_, {}});
    launching_ = false;
    if (obey_by_ != kNever) kill_sequence_ = link_.send(shim::Command::kill);
  }
  if (adopting_) {
    adopting_ = false;
    last_ = std::move(record);
    if (last_.phase() == shim::Phase::ended) exit_reported_ = last_.fixed.attempt;
    return;
  }
  notify(record);
  last_ = std::move(record);
  // A task that the agent froze stays frozen until a grant, whatever its shim reports before it learns of that.
  if (last_.has(shim::kLeaseFrozen)) report_froze(true);
  else if (!lease_.is_frozen_here()) report_froze(false);
  if (reconnected_) {
    reconnected_ = false;
    settle_pending("the connection to its shim was lost");
    if (end_asked_) ask_end();
  }
  // A shim that was told that its host stops leaves now, and accepts no start: reported when it is gone.
  if (last_.phase() == shim::Phase::ended && last_.fixed.attempt != exit_reported_ && !last_.has(shim::kHostStops))
    report_exit(with_port(known_exit(last_)));
}

void TrackedShim::on_ask(const shim::AskPacket& ask) {
  lease_.asked(ask);
  if (up()) events_.push_back(node::LeaseAsked{id_, ask.attempt, ask.nonce});
}

// About the attempt in `last_`; its end needs no report.
void TrackedShim::report_froze(bool frozen) {
  const AttemptNumber attempt = last_.fixed.attempt;
  if (!last_.active() || frozen == (froze_told_ == attempt)) return;
  froze_told_ = frozen ? attempt : 0;
  events_.push_back(node::LeaseFroze{id_, attempt, frozen});
}

// Compares with the newest known record: one packet may stand for several that found the socket full.
void TrackedShim::notify(const ShimRecord& record) {
  const bool same = record.fixed.attempt == last_.fixed.attempt;
  const auto news = [&](std::uint16_t flag) { return record.has(flag) && !(same && last_.has(flag)); };
  if (record.has(shim::kWarm) && !(same && last_.has(shim::kWarm)))
    events_.push_back(node::StandbyReport{id_, node::StandbyReport::News::used, ""});
  if (record.fixed.cold[0] != '\0' && std::strncmp(record.fixed.cold, last_.fixed.cold, sizeof(record.fixed.cold)) != 0)
    events_.push_back(node::StandbyReport{id_, node::StandbyReport::News::failed,
                                          std::string(record.fixed.cold, ::strnlen(record.fixed.cold, sizeof(record.fixed.cold)))});
  node::Notified event{id_, record.fixed.attempt, news(shim::kReady), false, news(shim::kStopping), std::nullopt};
  event.watchdog = record.fixed.watchdogs != (same ? last_.fixed.watchdogs : 0);
  if (record.fixed.statuses != (same ? last_.fixed.statuses : 0)) event.status = record.status;
  if (event.ready || event.watchdog || event.stopping || event.status) events_.push_back(std::move(event));
  if (record.pids != (same ? last_.pids : std::vector<std::int32_t>()) || record.fixed.stopped != (same ? last_.fixed.stopped : 0))
    report_processes(record);
}

// Of an attempt that has ended the exit says all.
void TrackedShim::report_processes(const ShimRecord& record) {
  if (record.phase() != shim::Phase::running) return;
  const std::uint32_t stopped = record.fixed.stopped;
  const bool ranks = !record.pids.empty();
  node::ProcessesSeen seen{id_, record.fixed.attempt, record.pids, std::nullopt};
  if (stopped > 0 && (!ranks || stopped <= record.pids.size()))
    seen.stopped = {ranks ? stopped : 0, ranks ? record.pids[stopped - 1] : record.fixed.pid, wall_time(record.fixed.stopped_ns)};
  events_.push_back(std::move(seen));
}

// Another program can take the port between its test and the task's own use. By now nothing of the task is left that
// could hold it.
task::Exit TrackedShim::with_port(task::Exit exit) const {
  const std::chrono::nanoseconds ran(last_.fixed.ended_ns - last_.fixed.started_ns);
  if (exit.success() || exit.unknown || exit.with_host || exit.signal == SIGKILL || launch_.port == 0 || ran > kPortProof) return exit;
  const Status port = check_port(launch_.address, launch_.port);
  if (port) return exit;
  exit.port_taken = true;
  exit.cause = port.error().message;
  return exit;
}

void TrackedShim::report_exit(task::Exit exit) {
  exit_reported_ = last_.fixed.attempt;
  events_.push_back(node::AttemptExited{id_, exit_reported_, std::move(exit)});
}

// Answers commands that were sent over a connection that is gone, as the record shows.
void TrackedShim::settle_pending(const std::string& cause) {
  for (const auto& [sequence, pending] : std::exchange(pending_, {})) {
    if (pending.command == shim::Command::start) {
      if (last_.fixed.attempt == pending.argument && last_.fixed.pid != 0)
        events_.push_back(node::AttemptStarted{id_, pending.argument, last_.fixed.pid, wall_time(last_.fixed.started_ns)});
      else refuse_start(pending.argument, unavailable("start", cause));
    } else {
      const bool wanted = pending.argument != 0;
      if (up() && last_.active() && last_.has(shim::kFrozen) == wanted) events_.push_back(node::FreezeDone{id_, wanted, {}});
      else events_.push_back(node::FreezeDone{id_, false, tl::unexpected(unavailable(wanted ? "freeze" : "thaw", cause))});
    }
  }
}

// ---------------------------------------------------------------- death

void TrackedShim::process_ended(Instant now) {
  // What it had still sent comes first. A closed connection is no news here.
  while (link_) {
    ShimLink::Received received = link_.receive();
    if (const auto* reply = std::get_if<shim::ReplyPacket>(&received)) on_reply(*reply);
    else if (auto* record = std::get_if<ShimRecord>(&received)) on_record(std::move(*record));
    else if (!std::holds_alternative<shim::AskPacket>(received))  // nobody is left to be answered
      link_.close();
  }
  bury(now);
}

void TrackedShim::bury(Instant now) {
  if (life_ == Life::burying || (gone() && !adopting_)) return;
  if (pidfd_) {
    siginfo_t info{};
    ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd_.get()), &info,
             WEXITED | WNOHANG);  // not this process's child after an adoption
  }
  pidfd_.reset();
  link_.close();
  life_ = Life::burying;
  obey_by_ = kNever;
  // It may have got further than it could report.
  if (auto state = read_record(directory_, shim::kStateFile);
      state && state->fixed.attempt >= last_.fixed.attempt &&
      !(state->fixed.attempt == last_.fixed.attempt && last_.phase() == shim::Phase::ended))
    last_ = std::move(*state);
  if (auto exit = read_record(directory_, shim::kExitFile);
      exit && exit->phase() == shim::Phase::ended && exit->fixed.attempt >= last_.fixed.attempt)
    last_ = std::move(*exit);
  pause_ = {};
  bury_more(now);
}

bool TrackedShim::kill_tree() {
  if (launch_.cgroup.empty()) return kill_leftovers(launch_.notify) > 0;
  const bool left = cgroup_populated(launch_.cgroup);
  if (left) cgroup_kill(launch_.cgroup);
  return left;
}

void TrackedShim::bury_more(Instant now) {
  if (!kill_tree()) return finish_burial();
  pause_ = std::clamp(pause_ * 2, kFirstShimPause, kLastShimPause);
  deadline_ = now + pause_;
}

task::Exit TrackedShim::known_exit(const ShimRecord& record) const {
  task::Exit exit = to_exit(record, launch_.argv.empty() ? "" : launch_.argv[0], launch_.work_dir);
  if (!exit.success() && !exit.with_host)
    exit.recorded = read_recorded_error(launch_, directory_, record.fixed.attempt, wall_time(record.fixed.started_ns),
                                        wall_time(record.fixed.ended_ns));
  // A process that was stopped fails nothing itself: others wait for it until they do.
  const WallTime stopped = wall_time(record.fixed.stopped_ns);
  if (!exit.success() && !exit.with_host && record.fixed.stopped > 0 && (!exit.recorded || stopped < exit.recorded->at))
    exit.recorded = job::RecordedError{launch_.ranks.empty() ? 0 : record.fixed.stopped, stopped, job::kStoppedError, ""};
  return exit;
}

task::Exit TrackedShim::unknown_exit() const {
  task::Exit exit;
  exit.unknown = true;
  exit.with_host = last_.has(shim::kHostStops);
  std::string boot = read_small_file("/proc/sys/kernel/random/boot_id").value_or("");
  if (!boot.empty() && boot.back() == '\n') boot.pop_back();
  const bool same_boot = boot == last_.fixed.boot_id || last_.fixed.boot_id[0] == '\0';
  exit.cause = same_boot ? "shim died" : "host restarted";
  return exit;
}

void TrackedShim::finish_burial() {
  life_ = Life::gone;
  deadline_ = kNever;
  lease_.forget();
  cgroup_remove({launch_.cgroup, launch_.memory_cgroup});
  if (adopting_) return;
  // The next attempt is ordered when an exit or a refusal is reported, and then with a new shim. Whoever asked for
  // the end gets all of that first.
  const bool gone_first = !launching_ && !end_asked_;
  if (gone_first) events_.push_back(node::ShimGone{id_, false});
  settle_pending("its shim died");
  if (launching_) {
    launching_ = false;
    launch_refused(launch_error_.value_or(unavailable("launch the shim of", "it died")));
    if (end_asked_) events_.push_back(node::ShimGone{id_, true});
    return;
  }
  const bool known = last_.phase() == shim::Phase::ended;
  const bool owed = last_.fixed.attempt != exit_reported_ && (known || last_.active());
  if (owed) report_exit(known ? known_exit(last_) : unknown_exit());
  if (!gone_first) events_.push_back(node::ShimGone{id_, true});
}

void TrackedShim::enforce_lease(Instant now) {
  if (lease_.enforce(now)) report_froze(true);
}

void TrackedShim::time_passed(Instant now) {
  if (now >= obey_by_) disobeyed();
  if (now < deadline_) return;
  deadline_ = kNever;
  switch (life_) {
    case Life::lost: return connect_again(now);
    case Life::burying: return bury_more(now);
    case Life::greeting:
      if (launching_) return give_up_launch("it did not come up in time", now);
      deadline_ = now + kGreetingBound;  // adopted, and stopped by somebody: it will answer when it can
      return;
    case Life::up:
      if (end_asked_) kill_process(pidfd_);
      return;
    case Life::gone: return;
  }
}

task::FoundShim TrackedShim::found() {
  task::FoundShim result;
  const bool silent = life_ == Life::greeting || life_ == Life::lost;
  if (silent)
    if (auto state = read_record(directory_, shim::kStateFile)) last_ = std::move(*state);
  adopting_ = life_ == Life::burying;  // reported here as dead: nothing of it is left to report
  result.id = id_;
  result.shim_alive = silent || up();
  result.attempt = last_.fixed.attempt;
  if (result.shim_alive) result.cpus = launch_.cpus;
  result.running = result.shim_alive && last_.active();
  result.pid = result.running ? last_.fixed.pid : 0;
  result.started = wall_time(last_.fixed.started_ns);
  result.ready = last_.has(shim::kReady);
  result.frozen = result.running && last_.has(shim::kFrozen);
  result.status = last_.status;
  result.leased = result.shim_alive && last_.has(shim::kLeased);
  result.epoch = last_.fixed.epoch;
  if (result.running && last_.has(shim::kLeaseFrozen)) report_froze(true);
  if (result.running && (!last_.pids.empty() || last_.fixed.stopped > 0)) report_processes(last_);
  if (result.running || result.attempt == 0) return result;
  exit_reported_ = result.attempt;
  // The state file has no last lines of stderr; the exit record has.
  const auto exit = read_record(directory_, shim::kExitFile);
  const bool recorded = exit && exit->phase() == shim::Phase::ended && exit->fixed.attempt == result.attempt;
  if (recorded) result.exit = known_exit(*exit);
  else result.exit = last_.phase() == shim::Phase::ended ? known_exit(last_) : unknown_exit();
  return result;
}

}  // namespace dtrain::proc
