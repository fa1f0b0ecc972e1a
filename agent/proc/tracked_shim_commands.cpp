#include "agent/proc/tracked_shim.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agent/base/small_file.h"
#include "agent/proc/port_check.h"

// The commands to a shim.
namespace dtrain::proc {

namespace {

constexpr Duration kEndBound = 10s;      // from EndShim to its death; then it is killed, and the agent kills the tree
constexpr Duration kObeyBound = 5s;      // from a kill to its answer; likewise
constexpr std::uint32_t kNeverSent = 0;  // no sequence number

}  // namespace

Error TrackedShim::unavailable(const std::string& what, const std::string& cause) const {
  return Error{ErrorCode::unavailable, "could not " + what + " " + id_.text() + ": " + cause, ""};
}

void TrackedShim::refuse_start(AttemptNumber attempt, Error error) {
  events_.push_back(node::AttemptRefused{id_, attempt, std::move(error)});
}

void TrackedShim::start(AttemptNumber attempt) {
  // Whether it has one shows soon. If it is refused because there is none, that is reported after the report that
  // there is none.
  if (life_ == Life::burying && !adopting_) {
    pending_[kNeverSent] = {shim::Command::start, attempt};
    return;
  }
  if (!up()) return refuse_start(attempt, unavailable("start", "it has no shim"));
  const bool waits = std::any_of(pending_.begin(), pending_.end(), [&](const auto& entry) {
    return entry.second.command == shim::Command::start && entry.second.argument == attempt;
  });
  if (waits && last_.has(shim::kLeased)) return;  // it waits for its grant and is answered once
  if (const bool again = last_.active() && last_.fixed.attempt == attempt; !again)
    if (const Status free = check_port(launch_.address, launch_.port); !free)
      return refuse_start(attempt, unavailable("start", free.error().text()));
  const std::uint32_t sequence = link_.send(shim::Command::start, attempt);
  // Its shim has closed the connection: what that means shows soon, and answers this command, too.
  const bool closed = sequence == 0 && (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN);
  if (sequence == 0 && !closed) return refuse_start(attempt, unavailable("start", "its shim takes no commands"));
  pending_[sequence] = {shim::Command::start, attempt};
}

void TrackedShim::signal(const node::SignalTask& order) {
  if (!up()) return;
  shim::CommandPacket packet;
  packet.command = static_cast<std::uint16_t>(shim::Command::signal);
  packet.a = static_cast<std::uint32_t>(order.signal);
  packet.b = order.whole_tree ? 1 : 0;
  packet.grace_ns = order.grace.count();
  link_.send(packet);
}

// A shim that does not answer at the moment (adopted, or its connection was lost) gets the command when it does.
void TrackedShim::kill(Instant now) {
  if (gone() || launching_ || life_ == Life::burying) return;
  kill_sequence_ = up() ? link_.send(shim::Command::kill) : kNeverSent;
  obey_by_ = std::min(obey_by_, now + kObeyBound);
}

// It hangs, or somebody has stopped it. The end is carried out all the same; what became of its tree is then not known.
void TrackedShim::disobeyed() {
  obey_by_ = kNever;
  kill_tree();
  if (!pidfd_ && link_) watch_process(link_.peer_pid());
  kill_process(pidfd_);
}

void TrackedShim::freeze(bool freeze) {
  const char* verb = freeze ? "freeze" : "thaw";
  const std::uint32_t sequence = up() ? link_.send(shim::Command::freeze, freeze ? 1 : 0) : 0;
  if (sequence != 0) {
    pending_[sequence] = {shim::Command::freeze, freeze ? 1u : 0u};
    return;
  }
  events_.push_back(node::FreezeDone{id_, false, tl::unexpected(unavailable(verb, "it has no shim that takes commands"))});
}

void TrackedShim::answer_lease(const node::AnswerLease& answer, Instant now) {
  if (!up()) return;
  if (answer.granted) lease_.granted(now, answer.nonce);
  shim::CommandPacket packet;
  packet.command = static_cast<std::uint16_t>(shim::Command::lease_answer);
  packet.a = answer.granted ? 1 : 0;
  packet.nonce = answer.nonce;
  packet.epoch = answer.epoch;
  link_.send(packet);
}

void TrackedShim::require_lease(const node::RequireLease& demand, std::uint64_t first_nonce) {
  if (!up() || last_.has(shim::kLeased)) return;
  shim::CommandPacket packet;
  packet.command = static_cast<std::uint16_t>(shim::Command::require_lease);
  packet.nonce = first_nonce;
  packet.lease_ns = demand.lease.count();
  link_.send(packet);
}

void TrackedShim::end(Instant now) {
  if (gone()) {
    events_.push_back(node::ShimGone{id_, true});
    return;
  }
  end_asked_ = true;
  if (life_ == Life::burying) return;
  if (link_) ask_end();
  if (up()) deadline_ = now + kEndBound;
  else if (!launching_) obey_by_ = std::min(obey_by_, now + kEndBound);
}

// The answer comes over the program's socket, which also ends if the shim cannot do it.
Status TrackedShim::run(const Runner::Program& program) {
  const std::string what = "launch a program in";
  std::string text;
  for (const std::string& argument : program.argv) text += argument + '\0';
  if (program.argv.size() > shim::kRunArguments || text.size() > shim::kRunBytes)
    return fail(ErrorCode::limit,
                unavailable(what, "it has more than " + std::to_string(shim::kRunArguments) + " arguments or " +
                                      std::to_string(shim::kRunBytes) + " bytes of them")
                    .message,
                "pass them in a file");
  const UniqueFd file(::memfd_create("dtrain-arguments", MFD_CLOEXEC));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return tl::unexpected(unavailable(what, cause_of(errno)));
  shim::CommandPacket packet;
  packet.command = static_cast<std::uint16_t>(shim::Command::run);
  packet.a = static_cast<std::uint32_t>(program.argv.size());
  packet.b = static_cast<std::uint32_t>(text.size());
  if (up() && link_.send(packet, {program.input, program.output, program.errors, program.socket, file.get()}) != kNeverSent) return {};
  return tl::unexpected(unavailable(what, up() ? "its shim takes no commands" : "it has no shim"));
}

// Only a child of this process is kept for another assignment: only then does a pidfd report its death.
void TrackedShim::ask_end() { link_.send(shim::Command::end, path_room_ > 0 ? 1 : 0); }

}  // namespace dtrain::proc
