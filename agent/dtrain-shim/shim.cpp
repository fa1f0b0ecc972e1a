#include "agent/dtrain-shim/shim.h"

#include <signal.h>
#include <stdio.h>  // rename
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <initializer_list>

namespace dtrain::shim {

namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kCgroupFreezeBound = 1000 * kMillisecond;
constexpr int64_t kStopFreezeBound = 200 * kMillisecond;
constexpr int64_t kFreezePause = 2 * kMillisecond;
constexpr int64_t kSyncAfter = 100 * kMillisecond;  // quiet time after an exit before its record is flushed
// from SIGTERM to the end of an attempt: twice as long as a stopping host waits
constexpr int64_t kHostStopBound = 60'000 * kMillisecond;
constexpr size_t kReadBytes = 32 << 10;  // of one stream in one turn
constexpr int kCommandsPerTurn = 16;
constexpr int kDatagramsPerTurn = 64;
constexpr int kEventsPerTurn = 16;

char read_buffer[kReadBytes];

}  // namespace

bool Shim::run() {
  while (true) {
    epoll_event events[kEventsPerTurn];
    const int count = epoll_wait(epoll_, events, kEventsPerTurn, timeout_ms());
    if (lease_) enforce_lease();
    for (int i = 0; i < count; ++i) {
      const uint64_t source = events[i].data.u64;
      if (source >= kLaunched) {
        launched_.signalled(static_cast<uint32_t>(source - kLaunched), tree_);
        continue;
      }
      if (source >= kStandbyAnswer) {
        standby_answered(static_cast<uint32_t>(source - kStandbyAnswer));
        continue;
      }
      if (source >= kOutput) {
        read_piece(static_cast<uint32_t>(source - kOutput) / 2, static_cast<int>((source - kOutput) % 2), kReadBytes);
        continue;
      }
      switch (static_cast<Source>(source)) {
        case kSignals: signalled(); break;
        case kListener: new_connection(); break;
        case kAgent: agent_ready(events[i].events); break;
        case kNotify: read_notifications(); break;
        case kCgroup:
        case kLeaseTimer: break;  // handled before and after
        case kOutput:
        case kStandbyAnswer:
        case kLaunched: break;  // handled above
      }
    }
    timers();
    if (starts_more()) start_next();
    if (link_.fd() < 0 && (launch_.header.flags & kStandby) != 0) break;  // it prepares for this agent alone
    // The command to end has been answered, or its agent is gone: the next agent finds the exit record.
    if (leaving_ && !runs() && !ends() && end_sequence_ == 0 && !link_.writing()) break;
  }
  if (!stays_) remove_sockets();
  if (!stays_ || link_.fd() < 0 || dup2(link_.fd(), kBirthSocket) < 0) return false;
  return standbys_.close_others(kBirthSocket);
}

int Shim::timeout_ms() const {
  int64_t due = INT64_MAX;
  for (const int64_t candidate : {kill_due_, freeze_due_, sync_due_, lead_.due(), notify_.flooded_until()})
    if (candidate != 0 && candidate < due) due = candidate;
  if (starts_more()) due = 0;
  if (due == INT64_MAX) return -1;
  const int64_t left = due - boot_ns();
  return left <= 0 ? 0 : static_cast<int>((left + kMillisecond - 1) / kMillisecond);
}

void Shim::timers() {
  if (ends()) step_ending();
  if (freeze_deadline_ != 0) step_freeze();
  if (lead_.due() != 0 && boot_ns() >= lead_.due()) processes_.keep_behind(lead_, boot_ns());
  if (notify_.is_stuck() || (deaf_ && boot_ns() >= notify_.flooded_until())) read_notifications();
  if (lease_) lease_timers();
  if (sync_due_ != 0 && boot_ns() >= sync_due_) {
    sync_due_ = 0;
    fsync(draft_);
    const int here = open_file(".", O_RDONLY | O_DIRECTORY);
    if (here >= 0) {
      fsync(here);
      close(here);
    }
  }
  if (leaving_ && end_sequence_ != 0 && !runs() && !ends() && (link_.reading() || link_.fd() < 0)) {
    ReplyPacket reply;
    reply.command = static_cast<uint16_t>(Command::end);
    reply.sequence = end_sequence_;
    reply.attempt = record_.attempt;
    stays_ = may_stay() && notify_.shut();
    reply.a = stays_ ? 1 : 0;
    if (stays_) remove_sockets();  // before another shim may have its own there
    end_sequence_ = 0;
    if (link_.fd() >= 0) link_.reply(reply);
    flush();
  }
}

// ---------------------------------------------------------------- the agent

void Shim::new_connection() {
  if (!link_.accept()) return;
  watch_agent();
  // A command of the earlier agent is carried out all the same; only its answer is dropped.
  freeze_sequence_ = end_sequence_ = start_sequence_ = 0;
  start_owed_ = false;
  if (lease_) withdraw_start(Outcome::withdrawn);  // except this one: the new agent orders the start again if it wants it
}

void Shim::agent_ready(uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush();
  if ((events & (EPOLLHUP | EPOLLERR)) != 0 && !link_.reading()) return link_.close_connection();
  for (int i = 0; i < kCommandsPerTurn && link_.reading(); ++i) {
    CommandPacket command;
    int fds[kRunDescriptors];
    const Link::Received received = link_.receive(command, fds);
    if (received == Link::Received::nothing) return;
    if (received == Link::Received::command) obey(command, fds);
    for (const int fd : fds)
      if (fd >= 0) close(fd);
    if (received == Link::Received::closed) return link_.close_connection();
  }
}

void Shim::obey(const CommandPacket& command, int (&fds)[kRunDescriptors]) {
  ReplyPacket reply;
  reply.command = command.command;
  reply.sequence = command.sequence;
  reply.attempt = record_.attempt;
  Outcome outcome = Outcome::done;
  bool answer_now = true;
  switch (static_cast<Command>(command.command)) {
    case Command::hello:
      reply.a = command.b < kVersion ? command.b : kVersion;
      if (command.a > kVersion || command.b < kOldestVersion) outcome = Outcome::wrong_version;
      else link_.set_greeted();
      link_.record_changed();
      break;
    case Command::start: outcome = start(command, reply, answer_now); break;
    case Command::signal: outcome = signal(command); break;
    case Command::kill:
      reap();  // what was stopped or has ended by now is known
      blame_stuck();
      if (!runs() && !ends()) outcome = Outcome::no_attempt;
      else kill_tree();
      if (lease_) withdraw_start(Outcome::withdrawn);
      break;
    case Command::freeze: outcome = lease_ ? order_freeze(command, answer_now) : freeze(command, answer_now); break;
    case Command::lease_answer: outcome = lease_answer(command); break;
    case Command::require_lease: outcome = require_lease(command); break;
    case Command::run: outcome = run_beside(command, fds); break;
    case Command::end:
      leaving_ = true;
      end_sequence_ = command.sequence;
      stay_asked_ = command.a == 1;
      if (lease_) withdraw_start(Outcome::withdrawn);
      if (runs() || ends()) kill_tree();
      answer_now = false;
      break;
    default: outcome = Outcome::unknown_command;
  }
  reply.outcome = static_cast<uint16_t>(outcome);
  if (answer_now) link_.reply(reply);
  flush();
  // The answer comes first, before the rest of the attempt's work.
  if (start_owed_) pay_start();
  if (!begun_) return;
  begun_ = false;
  write_state();
  reserve_exit_record();
}

void Shim::flush() {
  if (link_.writing()) {
    char bytes[kRecordBytes];
    link_.flush(bytes, encode(bytes, true));
  }
  const uint32_t wanted = (link_.reading() ? EPOLLIN : 0u) | (link_.writing() ? EPOLLOUT : 0u);
  if (link_.fd() < 0 || wanted == agent_events_) return;
  epoll_event event{};
  event.data.u64 = kAgent;
  event.events = agent_events_ = wanted;
  epoll_ctl(epoll_, EPOLL_CTL_MOD, link_.fd(), &event);
}

void Shim::changed() {
  link_.record_changed();
  flush();
  write_state();
}

// ---------------------------------------------------------------- starting

Outcome Shim::start(const CommandPacket& command, ReplyPacket& reply, bool& answer_now) {
  const uint32_t attempt = command.a;
  if (attempt < record_.attempt) return Outcome::attempt_too_low;
  if (attempt == record_.attempt && runs()) {
    reply.pid = record_.pid;
    reply.started_ns = record_.started_ns;
    return Outcome::already;
  }
  if (runs() || ends() || leaving_) return Outcome::busy;
  if (attempt == record_.attempt) return Outcome::attempt_ended;
  if (lease_) return order_start(command, answer_now);
  return begin_attempt(attempt, reply);
}

Outcome Shim::begin_attempt(uint32_t attempt, ReplyPacket& reply) {
  reply.attempt = attempt;
  launch_.set_attempt(attempt);
  processes_.begin();
  const ProcessStart start = start_process();
  if (start.error != 0) {
    reply.error = start.error;
    return Outcome::failed;
  }
  if ((launch_.header.flags & kFirstLeads) != 0 && launch_.processes() > 1 && !start.warm) lead_.begin(boot_ns());
  record_.attempt = attempt;
  record_.phase = static_cast<uint8_t>(Phase::running);
  record_.step = start.step;
  record_.error = start.step_error;
  record_.flags &= kLeased | kSuperseded;
  note_cold();
  if (start.warm) record_.flags |= kWarm;
  record_.pid = reply.pid = processes_.at(0).pid;
  record_.started_ns = reply.started_ns = wall_ns();
  record_.ended_ns = 0;
  record_.code = record_.signal = 0;
  record_.rank = record_.stopped = 0;
  record_.stopped_ns = 0;
  blamed_ = kMostRanks;
  record_.watchdogs = record_.statuses = 0;
  record_.status_bytes = record_.tail_bytes = 0;
  childless_ = false;
  grace_until_ = 0;
  sync_due_ = 0;
  link_.record_changed();
  begun_ = true;
  return Outcome::done;
}

// ---------------------------------------------------------------- freezing

Outcome Shim::freeze(const CommandPacket& command, bool& answer_now) {
  if (freeze_deadline_ != 0) answer_freeze(Outcome::failed, ECANCELED);  // a newer command replaced it
  if (!runs()) return Outcome::no_attempt;
  if (command.a == 0) {
    tree_.thaw();
    record_.flags &= static_cast<uint16_t>(~kFrozen);
    changed();
    return Outcome::done;
  }
  answer_now = false;
  end_lead();
  freeze_sequence_ = command.sequence;
  freeze_deadline_ = boot_ns() + (tree_.has_cgroup() ? kCgroupFreezeBound : kStopFreezeBound);
  freeze_due_ = 0;
  tree_.begin_freeze();
  watch_cgroup(true);
  return Outcome::done;
}

void Shim::step_freeze() {
  if (!runs()) return answer_freeze(Outcome::no_attempt, 0);
  if (tree_.freeze_step()) {
    record_.flags |= kFrozen;
    answer_freeze(Outcome::done, 0);
    return changed();
  }
  const int64_t now = boot_ns();
  freeze_due_ = now + kFreezePause;
  if (now < freeze_deadline_) return;
  // What cannot be frozen is killed: whoever asked relies on its not running.
  record_.flags |= kFreezeFailed;
  kill_tree();
  answer_freeze(Outcome::failed, ETIMEDOUT);
}

void Shim::answer_freeze(Outcome outcome, int error) {
  freeze_deadline_ = freeze_due_ = 0;
  watch_cgroup(false);
  ReplyPacket reply;
  reply.command = static_cast<uint16_t>(Command::freeze);
  reply.sequence = freeze_sequence_;
  reply.outcome = static_cast<uint16_t>(outcome);
  reply.error = error;
  reply.attempt = record_.attempt;
  reply.a = 1;
  if (freeze_sequence_ != 0 && link_.reading()) link_.reply(reply);
  flush();
}

void Shim::watch_cgroup(bool on) {
  if (tree_.events_fd() < 0 || on == watching_cgroup_) return;
  watching_cgroup_ = on;
  if (on) watch(tree_.events_fd(), kCgroup, EPOLLPRI);
  else epoll_ctl(epoll_, EPOLL_CTL_DEL, tree_.events_fd(), nullptr);
}

// ---------------------------------------------------------------- ending

// Read before children are reaped: a child that ends later raises another SIGCHLD.
void Shim::signalled() {
  signalfd_siginfo news[2];  // at most one of each kind is pending
  const ssize_t n = read(signals_, news, sizeof(news));
  for (ssize_t i = 0; i < n / static_cast<ssize_t>(sizeof(news[0])); ++i)
    if (news[i].ssi_signo == SIGTERM) host_stops();
  reap();
}

void Shim::reap() {
  int status = 0;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
      processes_.stopped(pid, WIFSTOPPED(status) ? wall_ns() : 0);
      if (runs() && !stands_still() && note_stopped()) changed();
      continue;
    }
    standbys_.ended(pid);
    launched_.ended(pid, status, tree_);
    const uint32_t index = processes_.take(pid);
    if (runs() && index < processes_.count()) process_ended(index, status);
  }
  childless_ = pid < 0 && errno == ECHILD;
}

// A rank that is done is waited for by nobody; the attempt is done with the last, and fails with the first that does.
void Shim::process_ended(uint32_t index, int status) {
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0, signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (code == 0 && signal == 0 && (processes_.any_left() || more_to_start())) return changed();
  attempt_ends(index, code, signal);
  // SIGTERM may have come after the last look; it is certainly there if it was sent before the task's.
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  const timespec at_once{};
  if (sigtimedwait(&term, nullptr, &at_once) == SIGTERM) host_stops();
  // The attempt ended long after the stop, so it ended by itself. For a service systemd limits that time.
  else if ((launch_.header.flags & kUnit) == 0 && boot_ns() - host_stops_ns_ > kHostStopBound)
    record_.flags &= static_cast<uint16_t>(~kHostStops);
}

// `index`: of the process whose end is the attempt's. Of those that are killed together, it is the one that was to blame.
void Shim::attempt_ends(uint32_t index, int code, int signal) {
  if (signal == SIGKILL && blamed_ < processes_.count()) index = blamed_;
  else if (code != 0 || signal != 0) blame_stuck();
  record_.phase = static_cast<uint8_t>(Phase::ending);
  record_.ended_ns = wall_ns();
  record_.code = code;
  record_.signal = signal;
  last_process_ = index;
  standbys_.dismiss();
  end_lead();
  if (launch_.header.rank_count > 0 && (code != 0 || signal != 0)) record_.rank = index + 1;
  kill_due_ = kill_pause_ = 0;
}

void Shim::finish_attempt() {
  read_notifications();
  drain_output();
  record_.tail_bytes = processes_.at(last_process_).tail_bytes;
  log_.note_drops(record_.attempt);
  journal_.end_line();
  if (tree_.memory_kills() > memory_kills_) record_.flags |= kOutOfMemory;
  if ((record_.flags & kFrozen) != 0 || freeze_deadline_ != 0) tree_.thaw();  // otherwise the next attempt would be born frozen
  record_.flags &= static_cast<uint16_t>(~kFrozen);
  record_.phase = static_cast<uint8_t>(Phase::ended);
  record_.dropped_bytes = log_.dropped_bytes();
  kill_due_ = kill_pause_ = 0;
  if (freeze_deadline_ != 0) answer_freeze(Outcome::no_attempt, 0);
  watch_cgroup(false);
  if (lease_) lease_attempt_ended();
  tree_.renew();
  memory_kills_ = tree_.memory_kills();
  write_exit_record();
  changed();
  sync_due_ = boot_ns() + kSyncAfter;
}

// ---------------------------------------------------------------- output and notifications

// One read. Returns the number of bytes; 0: there are none now, or never again.
size_t Shim::read_piece(uint32_t process, int stream, size_t limit) {
  int& fd = processes_.at(process).output[stream];
  if (fd < 0) return 0;
  const ssize_t n = read(fd, read_buffer, limit < kReadBytes ? limit : kReadBytes);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  if (n <= 0) {
    close(fd);
    fd = -1;
    return 0;
  }
  const auto size = static_cast<size_t>(n);
  const uint32_t rank = launch_.header.rank_count > 0 ? process + 1 : 0;
  log_.append({static_cast<task::LogStream>(stream), static_cast<uint16_t>(rank), record_.attempt}, read_buffer, size);
  journal_.append(static_cast<task::LogStream>(stream), read_buffer, size);
  if (stream == static_cast<int>(task::LogStream::err)) processes_.keep_tail(process, read_buffer, size);
  return size;
}

// Every writer is gone, so the pipe holds all the output there will be, unless another process got the descriptor; so
// the present amount is the limit.
void Shim::drain_output() {
  for (uint32_t process = 0; process < processes_.count(); ++process) {
    for (int stream = 0; stream < 2; ++stream) {
      int& fd = processes_.at(process).output[stream];
      int left = 0;
      if (fd >= 0 && ioctl(fd, FIONREAD, &left) != 0) left = 0;
      while (left > 0) {
        const size_t taken = read_piece(process, stream, static_cast<size_t>(left));
        left = taken == 0 ? 0 : left - static_cast<int>(taken);
      }
      if (fd >= 0) close(fd);
      fd = -1;
    }
  }
}

void Shim::read_notifications() {
  static Notification news;
  bool anything = false;
  for (int i = 0; i < kDatagramsPerTurn && notify_.receive(news); ++i) {
    if (!runs() && !ends()) continue;
    if (news.ready) record_.flags |= kReady;
    if (news.stopping) record_.flags |= kStopping;
    const bool lives = news.watchdogs > 0 && processes_.heard(news.sender, boot_ns());
    record_.watchdogs += lives ? 1 : 0;
    if (news.has_status) {
      memcpy(status_, news.status, news.status_bytes);
      record_.status_bytes = news.status_bytes;
      ++record_.statuses;
    }
    anything = anything || news.ready || news.stopping || lives || news.has_status;
  }
  if ((notify_.is_stuck() || notify_.flooded_until() != 0) == deaf_) return anything ? changed() : void();
  // It waits for one of its holders to end, which is checked at every other event; or for strangers.
  deaf_ = !deaf_;
  epoll_event event{};
  event.data.u64 = kNotify;
  event.events = deaf_ ? 0u : static_cast<uint32_t>(EPOLLIN);
  epoll_ctl(epoll_, EPOLL_CTL_MOD, notify_.fd(), &event);
  if (anything) changed();
}

// ---------------------------------------------------------------- files

size_t Shim::encode(char* out, bool with_tail) const {
  Record record = record_;
  if (!with_tail || record.phase != static_cast<uint8_t>(Phase::ended)) record.tail_bytes = 0;
  record.pid_count = launch_.header.rank_count > 0 && runs() ? processes_.count() : 0;
  memcpy(out, &record, sizeof(record));
  memcpy(out + sizeof(record), status_, record.status_bytes);
  size_t size = sizeof(record) + record.status_bytes;
  memcpy(out + size, processes_.tail(last_process_), record.tail_bytes);
  size += record.tail_bytes;
  for (uint32_t i = 0; i < record.pid_count; ++i, size += sizeof(int32_t)) {
    const int32_t pid = processes_.pid(i);
    memcpy(out + size, &pid, sizeof(pid));
  }
  return size;
}

void Shim::write_state() {
  char bytes[kRecordBytes];
  (void)!pwrite(state_, bytes, encode(bytes, false), 0);
}

// Done early, so that a disk that is full at the end has space for the record.
void Shim::reserve_exit_record() {
  if (draft_ >= 0) close(draft_);
  draft_ = open_file(kExitDraft, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
  char bytes[kRecordBytes] = {};
  encode(bytes, false);
  if (draft_ >= 0) (void)!pwrite(draft_, bytes, sizeof(bytes), 0);
}

void Shim::write_exit_record() {
  char bytes[kRecordBytes];
  const size_t size = encode(bytes, true);
  if (draft_ >= 0 && pwrite(draft_, bytes, size, 0) == static_cast<ssize_t>(size)) rename(kExitDraft, kExitFile);
}

}  // namespace dtrain::shim
