// The verbs that clients and other agents may ask, one row for each request in control.h's list of types (docs/adding.md). A row names the
// handler and says what this node must have to answer, where the request goes otherwise, which role the caller needs, and how it is
// recorded. Requests does what it says. A row stands beside its handler; a request without one does not link.
#pragma once

#include <cstdint>

#include "common/node/access.h"
#include "common/node/event.h"
#include "common/wire/control.h"

namespace dtrain::node {

class Requests;

// What this node must have to answer a request itself.
enum class Needs : std::uint8_t {
  nothing,
  no_old_copy,   // a copy of the ledger that is here must be current; a node without one answers all the same
  copy,          // a copy of the ledger, be it old
  current_copy,  // a copy of which a leader has told since this agent's start which entries are committed; the request waits for that
  coordinator,   // this node coordinates
};

// Which node a request is passed on to if this one cannot answer it. Other agents may ask nothing whose row says `never`.
enum class PassedOn : std::uint8_t {
  never,
  to_coordinator,
  to_host,         // the handler finds out which host
  between_agents,  // none; only agents may ask it
};

// Who judges here whether the caller has the row's role. Before a request is passed on to the coordinator it is always judged by the row.
enum class Judged : std::uint8_t {
  by_row,      // Requests, before it calls the handler
  by_handler,  // the handler, which knows whose job it is, or the words of the refusal
};

// How it is recorded who made a change.
enum class Audit : std::uint8_t {
  none,
  event,  // by an event of this node (Callers::audit)
  entry,  // in the entry of the log that the request becomes (ClientCommands::pend)
};

struct Rule {
  Needs needs = Needs::nothing;
  const char* what = "";  // the words after "could not" in a refusal
  PassedOn passed_on = PassedOn::never;
};

struct Asked;

struct Verb {
  void (*serve)(Requests& front, const Asked& asked);  // decodes the payload, once, and calls the handler
  Rule rule = {};
  Role role = Role::view;  // the least that the caller needs
  Judged judged = Judged::by_row;
  Audit audit = Audit::none;
  bool from_task = false;             // a task's own processes may ask it, and nothing else
  const Rule* rule_of_job = nullptr;  // takes the place of `rule` where the payload names a job
};

// One request on its way to its handler.
struct Asked {
  const Request& request;
  const wire::Message& message;
  const Caller& caller;
  const Verb& verb;
};

// The rows, by the names of their types.
namespace verbs {
#define DTRAIN_ROW(name) extern const Verb name;
#define DTRAIN_NO_ROW(name)
DTRAIN_MESSAGE_TYPES(DTRAIN_NO_ROW, DTRAIN_ROW, DTRAIN_NO_ROW)
#undef DTRAIN_ROW
#undef DTRAIN_NO_ROW
}  // namespace verbs

// nullptr: Node knows no request of that type.
const Verb* verb_of(wire::MessageType type);

}  // namespace dtrain::node
