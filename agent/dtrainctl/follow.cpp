#include "agent/dtrainctl/follow.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/dtrainctl/log_printer.h"
#include "agent/dtrainctl/progress.h"
#include "agent/dtrainctl/signals.h"
#include "agent/dtrainctl/stream.h"
#include "agent/dtrainctl/words.h"

namespace dtrain::ctl {
namespace {

constexpr auto kRedraw = std::chrono::seconds(1);
// What a start waits for is usually over before anybody could read it, so it is printed only after this time.
constexpr auto kSayWaiting = std::chrono::seconds(1);

class Follower {
 public:
  Follower(Session& session, const FollowOptions& options)
      : session_(session),
        options_(options),
        live_(session.io.out_tty),
        screen_(session.io.out),
        watch_(
            session, [this](Connection& c) { send_watch(c); }, true),
        logs_(
            session, [this](Connection& c) { send_logs(c); }, false),
        resume_(logs_request(options.job)),
        printer_(log_style(session, options.raw), [this](std::string_view text) { print(text); }) {}

  int run() {
    Signals signals{SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    // The job was accepted: an agent that is gone by now is waited for like one that goes away later.
    for (Stream* stream : {&watch_, &logs_})
      if (auto started = stream->start(); !started && !started.error().lost) return session_.report(started.error());
    while (true) {
      if (auto done = look(); !done) return end(session_.report(done.error()));
      if (ended_ && (logs_.finished() || Clock::now() >= drain_by_)) return end(conclude());
      std::vector<pollfd> others{{signals.fd(), POLLIN, 0}, {asking_ ? session_.io.in_fd : -1, POLLIN, 0}};
      // The job's age advances by itself.
      const Deadline next = std::min(live_ ? redraw_at_ : kNoDeadline, waiting_at_);
      wait_for({&watch_, &logs_}, others, ended_ ? std::min(drain_by_, next) : next);
      if (Clock::now() >= waiting_at_) say_waiting();
      if (live_ && Clock::now() >= redraw_at_) draw();
      for (int signal = signals.next(); signal != 0; signal = signals.next())
        if (const int code = on_signal(signal); code >= 0) return end(code);
      if (others[1].revents != 0)
        if (const int code = on_answer(); code >= 0) return end(code);
    }
  }

 private:
  static LogStyle log_style(const Session& session, bool raw) {
    LogStyle style;
    style.prefix = true;
    style.color = session.layout().color;
    style.terminal = session.io.out_tty && !raw;
    style.bars_apart = session.io.out_tty;
    return style;
  }

  void send_watch(Connection& connection) {
    wire::WatchRequest request;
    request.job = options_.job;
    request.id = options_.id;
    connection.send(wire::MessageType::watch, request);
  }
  void send_logs(Connection& connection) { connection.send(wire::MessageType::logs, resume_.request()); }
  static wire::LogsRequest logs_request(const std::string& job) {
    wire::LogsRequest request;
    request.job = job;
    request.follow = true;
    request.all_attempts = true;
    return request;
  }

  Outcome<void> look() {
    auto updates = watch_.turn();
    if (!updates) return failed(updates.error());
    for (const wire::Message& message : *updates) {
      auto update = Connection::read<wire::JobUpdate>(message, wire::MessageType::update);
      if (!update) return failed(update.error());
      on_update(std::move(*update));
    }
    auto chunks = logs_.turn();
    if (!chunks) return failed(chunks.error());
    for (const wire::Message& message : *chunks) on_log(message);
    if (live_ && bars_ != printer_.bars()) draw();
    const bool away = watch_.away() || logs_.away();
    if (away != away_) say(away ? "lost the agent; waiting for it" : "the agent is back");
    away_ = away;
    return {};
  }

  void on_update(wire::JobUpdate update) {
    const bool final = update.final;
    gone_ = update.gone;
    if (!gone_) {
      if (!live_)
        for (const std::string& line : plain_.changes(update)) session_.io.err << line << "\n" << std::flush;
      if (update.waiting_for != last_.waiting_for) {
        waiting_at_ = update.waiting_for.empty() ? kNoDeadline : Clock::now() + kSayWaiting;
        waiting_.clear();
      }
      last_ = std::move(update);
      last_at_ = Clock::now();
      draw();
    }
    if ((final || gone_) && !ended_) {
      ended_ = true;
      drain_by_ = Clock::now() + kLogDrain;
      watch_.finish();
    }
  }

  void say_waiting() {
    waiting_at_ = kNoDeadline;
    waiting_ = last_.waiting_for;
    if (live_) draw();
    else session_.io.err << printable("job " + last_.job.name + ": waits: " + waiting_) << "\n" << std::flush;
  }

  void on_log(const wire::Message& message) {
    if (message.type == wire::MessageType::ok) {
      logs_.finish();
      return;
    }
    auto chunk = Connection::read<wire::LogChunk>(message, wire::MessageType::log_chunk);
    if (!chunk) {
      // The job is worth following even without its logs.
      say(chunk.error().items.front().message);
      logs_.finish();
      return;
    }
    printer_.add(*chunk, resume_.fresh(*chunk));
    if (!chunk->note.empty()) say(chunk->note);
    if (message.last) logs_.finish();
  }

  // Returns the exit code, or -1 to continue.
  int on_signal(int signal) {
    if (signal == SIGWINCH) {
      if (const auto size = window_size(STDOUT_FILENO); live_ && size) {
        session_.io.columns = size->columns;
        draw();
      }
      return -1;
    }
    if (ended_) return conclude();
    if (options_.cancel_on_exit && !cancelled_) {
      cancel();
      return signal == SIGHUP ? detached() : -1;
    }
    if (signal != SIGINT || asking_ || cancelled_ || !session_.io.in_tty || !live_) return detached();
    asking_ = true;
    draw();
    return -1;
  }

  int on_answer() {
    char buffer[256];
    const ssize_t n = ::read(session_.io.in_fd, buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return -1;
    if (n <= 0) return detached();
    screen_.line_typed();
    asking_ = false;
    if (buffer[0] == 'd') return detached();
    if (buffer[0] == 'y') cancel();
    draw();
    return -1;
  }

  void cancel() {
    cancelled_ = true;
    wire::ActionRequest request;
    request.action = wire::Action::cancel;
    request.job = options_.job;
    request.request_id = make_request_id();
    auto reply = session_.change<wire::Empty>(wire::MessageType::action, request, wire::MessageType::ok);
    say(reply ? "cancelling job " + options_.job : reply.error().items.front().message);
  }

  int detached() {
    const std::string& state = last_.job.state;
    const bool stands = state == "Pending" || state == "Suspended";
    const std::string how = stands ? " is " + state : state.empty() ? " goes on" : " runs on";
    say("detached: the job " + options_.job + how + "; dtrainctl logs -f " + options_.job + " follows it");
    return kDetached;
  }

  int conclude() {
    if (!logs_.finished()) say("could not get the rest of the logs in time; dtrainctl logs " + options_.job + " shows them");
    if (gone_) {
      say("job " + options_.job + " was deleted");
      return kJobFailed;
    }
    std::string text = "job " + last_.job.name + ": " + last_.job.state + " after " + age_text(last_.job.duration_s);
    if (last_.job.restarts != 0) text += ", restarts " + std::to_string(last_.job.restarts);
    if (!last_.job.reason.empty()) text += ": " + last_.job.reason;
    const bool good = last_.job.state == "Succeeded";
    if (!good) text += "; dtrainctl describe job " + last_.job.name + " says more";
    say(text);
    return good ? kDone : kJobFailed;
  }

  int end(int code) {
    printer_.finish();
    if (live_ && !bars_.empty()) draw();
    if (live_) screen_.settle();
    return code;
  }

  void draw() {
    if (!live_) return;
    redraw_at_ = Clock::now() + kRedraw;
    wire::JobUpdate shown = last_;
    shown.waiting_for = waiting_;
    if (!ended_) shown.job.duration_s += std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - last_at_).count();
    bars_ = printer_.bars();
    std::vector<std::string> block = progress_block(shown, session_.layout(), bars_);
    // A block taller than the screen could not be redrawn.
    const std::size_t rows = window_size(STDOUT_FILENO).value_or(WindowSize{}).rows;
    if (block.size() + 2 > rows) block.resize(rows > 2 ? rows - 2 : 0);
    screen_.draw(std::move(block), asking_ ? "cancel job " + options_.job + "? [y]es, [n]o, [d]etach: " : "");
  }
  void print(std::string_view text) {
    if (live_) screen_.print_above(text);
    else session_.io.out.write(text.data(), static_cast<std::streamsize>(text.size())).flush();
  }
  void say(const std::string& text) {
    if (live_) screen_.print_above("dtrainctl: " + printable(text) + "\n");
    else session_.note(text);
  }

  Session& session_;
  const FollowOptions options_;
  const bool live_;
  LiveScreen screen_;
  Stream watch_, logs_;
  LogResume resume_;
  LogPrinter printer_;
  PlainProgress plain_;
  wire::JobUpdate last_;
  Deadline last_at_{};
  Deadline drain_by_ = kNoDeadline, redraw_at_{};
  std::vector<std::string> bars_;      // as drawn
  Deadline waiting_at_ = kNoDeadline;  // when what it waits for will have lasted long enough
  std::string waiting_;                // what was last printed
  bool ended_ = false, gone_ = false, away_ = false, asking_ = false, cancelled_ = false;
};

}  // namespace

int follow_job(Session& session, const FollowOptions& options) { return Follower(session, options).run(); }

}  // namespace dtrain::ctl
