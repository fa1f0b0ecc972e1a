// What every verb needs: the global options, the streams, and functions to ask the agent and to report the result.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "agent/dtrainctl/client.h"
#include "agent/dtrainctl/failure.h"
#include "agent/dtrainctl/io.h"
#include "agent/dtrainctl/render.h"
#include "common/json/json.h"

namespace dtrain::ctl {

using json::Json;

enum class Format : unsigned char { table, wide, json, yaml };

inline constexpr auto kPackageTime = std::chrono::minutes(10);  // for one answer if a package must reach the voters first
inline constexpr auto kAnswerTime = std::chrono::seconds(30);   // for one answer, unless --timeout says otherwise
// how long a local agent that cannot be reached is waited for, since it may be starting again
inline constexpr auto kRestartTime = std::chrono::seconds(5);
inline constexpr auto kReconnectPause = std::chrono::milliseconds(100);  // between two tries to reach a lost agent
inline constexpr const char* kMayStillBeDone =
    "dtrainctl status and dtrainctl nodes show which agents are missing: start them. It may still be carried out";
inline constexpr auto kWatchPause = std::chrono::seconds(1);  // between two looks of -w

struct Globals {
  AgentAddress agent{"/run/dtrain/control.sock", ""};
  Format format = Format::table;
  std::optional<Duration> timeout;
  bool color = true;  // still only on a terminal
};

class Session {
 public:
  Session(Io& streams, Globals options) : io(streams), globals(std::move(options)) {}

  Io& io;
  Globals globals;

  bool structured() const { return globals.format == Format::json || globals.format == Format::yaml; }
  Layout layout() const { return {io.columns, globals.color && io.out_tty, globals.format == Format::wide}; }
  // The deadline of an answer: now + --timeout. `otherwise` replaces the default time; nullopt: no limit.
  Deadline answer_deadline(std::optional<Duration> otherwise = kAnswerTime) const;
  Outcome<Connection> connect() const { return Connection::open(globals.agent, answer_deadline()); }

  // Sends one request on a connection of its own.
  template <class Reply, class Request>
  Outcome<Reply> ask(wire::MessageType type, const Request& request, wire::MessageType expected) const {
    return ask_by<Reply>(type, request, expected, answer_deadline());
  }
  template <class Reply, class Request>
  Outcome<Reply> ask_by(wire::MessageType type, const Request& request, wire::MessageType expected, Deadline deadline) const {
    auto connection = Connection::open(globals.agent, deadline);
    if (!connection) return failed(connection.error());
    return connection->call<Reply>(type, request, expected, deadline);
  }
  // For a request that carries a request id, or changes nothing: if the agent goes away before it answers, the
  // request is sent again until the deadline. An agent that cannot be reached at all is a failure at once.
  template <class Reply, class Request>
  Outcome<Reply> ask_surely(wire::MessageType type, const Request& request, wire::MessageType expected,
                            Duration otherwise = kAnswerTime) const {
    const Deadline deadline = answer_deadline(otherwise);
    return ask_until<Reply>(Connection::open(globals.agent, deadline), type, request, expected, deadline, nullptr);
  }
  // The same for a request that changes something, so that nobody has to repeat it by hand because the agent was just
  // restarting. `again`: it was sent more than once, so what it found done may be its own work.
  template <class Reply, class Request>
  Outcome<Reply> change(wire::MessageType type, const Request& request, wire::MessageType expected, Duration otherwise = kAnswerTime,
                        bool* again = nullptr) const {
    const Deadline deadline = answer_deadline(otherwise);
    auto connection = connect_to_restarting(deadline);
    if (!connection) return failed(connection.error());
    auto reply = ask_until<Reply>(std::move(connection), type, request, expected, deadline, again);
    // The request was sent: the agent may still carry it out after the client stopped waiting.
    if (!reply && (reply.error().late || reply.error().lost)) reply.error().items.front().next = kMayStillBeDone;
    return reply;
  }
  // Waits for kRestartTime for an agent of this host that cannot be reached.
  Outcome<Connection> connect_to_restarting(Deadline deadline) const;
  // Tries to reach the agent until the deadline.
  Outcome<Connection> reconnect(Deadline deadline) const;

  // Prints one JSON or YAML document, or the table that `text` makes.
  void show(const Json& json, const std::function<std::string()>& text) const;
  // Prints "dtrainctl: TEXT" on stderr.
  void note(const std::string& text) const;
  void warn(const std::vector<std::string>& warnings, const std::string& named = "") const;  // `named`: LoadedJob::named
  void note_stale(bool stale) const;
  // Prints what went wrong, in the form that -o asks for, and returns the exit code.
  int report(const Failure& failure) const;

 private:
  template <class Reply, class Request>
  Outcome<Reply> ask_until(Outcome<Connection> connection, wire::MessageType type, const Request& request, wire::MessageType expected,
                           Deadline deadline, bool* again) const {
    if (!connection) return failed(connection.error());
    while (true) {
      auto reply = connection->template call<Reply>(type, request, expected, deadline);
      if (reply || !reply.error().lost) return reply;
      if (auto other = reconnect(deadline); other) connection = std::move(other);
      else return reply;
      if (again != nullptr) *again = true;
    }
  }
};

// 128 random bits in hex: the id of one request, so that it can be sent twice and carried out once.
std::string make_request_id();

// The failure of an agent that knows no such job, for "TYPE J".
Failure job_not_found(const std::string& job);

}  // namespace dtrain::ctl
