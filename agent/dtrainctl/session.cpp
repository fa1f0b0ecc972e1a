#include "agent/dtrainctl/session.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "agent/dtrainctl/words.h"
#include "common/base/check.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

Deadline Session::answer_deadline(std::optional<Duration> otherwise) const {
  const std::optional<Duration> limit = globals.timeout ? globals.timeout : otherwise;
  if (!limit) return kNoDeadline;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(*limit);
}

Outcome<Connection> Session::reconnect(Deadline deadline) const {
  while (true) {
    auto connection = Connection::open(globals.agent, deadline);
    if (connection || !connection.error().lost || Clock::now() >= deadline) return connection;
    std::this_thread::sleep_until(std::min<Deadline>(deadline, Clock::now() + kReconnectPause));
  }
}

Outcome<Connection> Session::connect_to_restarting(Deadline deadline) const {
  auto connection = Connection::open(globals.agent, deadline);
  std::error_code none;
  const bool may_come = !net::is_host_and_port(globals.agent.at) &&
                        std::filesystem::is_directory(std::filesystem::path(globals.agent.at).parent_path(), none);
  if (connection || !connection.error().lost || !may_come) return connection;
  note("no agent answers at " + globals.agent.at + ": it may be starting again; trying for " + std::to_string(kRestartTime.count()) + " s");
  return reconnect(std::min(deadline, Clock::now() + kRestartTime));
}

void Session::show(const Json& json, const std::function<std::string()>& text) const {
  switch (globals.format) {
    case Format::json: io.out << json::text(json, true) << "\n"; break;
    case Format::yaml: io.out << json::yaml(json) << "\n"; break;
    case Format::table:
    case Format::wide: io.out << text(); break;
  }
  io.out.flush();
}

void Session::note(const std::string& text) const { io.err << "dtrainctl: " << printable(text) << "\n" << std::flush; }

void Session::warn(const std::vector<std::string>& warnings, const std::string& named) const {
  for (const std::string& warning : warnings) io.err << "warning: " << printable(named + warning) << "\n";
  io.err.flush();
}

void Session::note_stale(bool stale) const {
  if (stale) note("the answer is this agent's own knowledge and may be out of date: it reaches no quorum");
}

int Session::report(const Failure& failure) const {
  if (globals.format == Format::json) io.err << json::text(Json{{"errors", json::of(failure.items)}}, false) << "\n";
  else io.err << failure_text(failure);
  io.err.flush();
  return exit_code(failure.code());
}

std::string make_request_id() {
  std::array<unsigned char, 16> bytes{};
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t n = ::getrandom(bytes.data() + have, bytes.size() - have, 0);
    CHECK(n > 0 || errno == EINTR);  // the kernel's generator never fails once it is seeded
    if (n > 0) have += static_cast<std::size_t>(n);
  }
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char byte : bytes) {
    out.push_back(digits[byte >> 4]);
    out.push_back(digits[byte & 15]);
  }
  return out;
}

Failure job_not_found(const std::string& job) {
  return Failure(
      Error{ErrorCode::not_found, "could not find job " + job + ": there is none of that name", "dtrainctl jobs shows those there are"});
}

}  // namespace dtrain::ctl
