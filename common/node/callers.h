// The clients that are connected, and what each may do. A refused caller is told whom to ask. Refusals, and changes that the ledger has
// no entry for, become events of this node.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/node/access.h"
#include "common/node/context.h"
#include "common/node/part.h"
#include "common/node/refusals.h"
#include "common/wire/control.h"

namespace dtrain::node {

class Callers final : public Part {
 public:
  explicit Callers(Context& context) : Part(Runs::always), c_(context) {}

  void opened(const ConnectionOpened& e) { callers_[e.connection] = e.caller; }
  void closed(ConnectionId connection) override { callers_.erase(connection); }
  const Caller* find(ConnectionId connection) const;  // nullptr: it is closed

  Role role_of(const Caller& caller) const { return node::role_of(caller, c_.options.access, c_.options.agent_uid); }
  // Refuses a request if the caller's role is less than `least`. Returns false if the role is enough.
  bool refuse_role(const Request& e, const Caller& caller, Role least, const std::string& could_not);
  // Refuses a request if this agent starts no tasks as that user, whatever the role. Returns false if it does.
  bool refuse_user(const Request& e, const Caller& caller);
  // Returns the job of that name; nullptr: an error was sent.
  const cluster::JobRecord* find_job(const Request& e, const std::string& name);
  // Returns the job if the caller may do `deed` to it; nullptr: an error was sent.
  const cluster::JobRecord* permitted_job(const Request& e, const std::string& name, const Caller& caller, Deed deed,
                                          const std::string& verb);
  void note_refusal(const Caller& caller, const std::string& reason);
  // Refuses a request for want of rights.
  void forbid(const Request& e, const Caller& caller, const Error& error);
  void tick() override;  // reports refusals that were held back
  Instant deadline() const override { return refusals_.deadline(); }

  cluster::Asker asker(const Caller& caller) const { return {caller.user, caller.uid, asked_at(caller)}; }
  // Records a change that the ledger has no entry for as an event of this node, audit.WORD. `details` come first. `of`: the verb, whose
  // row must say so.
  void audit(wire::MessageType of, const Caller& caller, const std::string& word, const std::string& object, const std::string& reason,
             std::vector<cluster::EventField> details);
  // To be called when a reload (SIGHUP) by that caller changed who may do what. Adds an event if there is a difference.
  void access_changed(const Access& before, const Access& after, const Caller& by);

 private:
  void report_refusal(const Refusals::Summary& report);
  void report_change(const Caller& caller, const std::string& word, const std::string& object, const std::string& reason,
                     std::vector<cluster::EventField> details);
  // The name of the host that the client is connected to.
  const std::string& asked_at(const Caller& caller) const { return caller.at.empty() ? c_.facts.name : caller.at; }

  Context& c_;
  std::map<ConnectionId, Caller> callers_;
  Refusals refusals_;
};

}  // namespace dtrain::node
