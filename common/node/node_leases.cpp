// Node's part in the leases of this host's tasks: between their shims and node/leases.h.
#include "common/base/lease.h"
#include "common/node/node_impl.h"

namespace dtrain::node {

// Before the tasks are adopted nobody can say whether they are still wanted: the shim asks again.
void Node::Impl::lease_asked(const LeaseAsked& e) {
  if (!host || c.storage_failed || forming.log_changes()) return;
  // This agent will not adopt the task, but the coordinator knows what is to run where.
  if (c.ledger.behind() && host->unclaimed(e.id)) return leases.ask(e);
  task::Task* task = host->find(e.id);
  if (task == nullptr || !c.current) return;
  task->lease_asked(e.nonce);
  leases.ask(e);
}

void Node::Impl::lease_froze(const LeaseFroze& e) {
  c.log.write(LogLevel::warn, e.frozen ? "lease.frozen" : "lease.thawed",
              {{"task", e.id.text()}, {"attempt", std::to_string(e.attempt)}});
  streams.changed(e.id.job);
}

// If no coordinator was heard for one lease, all tasks whose leases the same coordinator granted are frozen.
void Node::Impl::watch_word() {
  if (!host || !c.replicated || c.storage_failed || !host->needs_leases()) return;
  const bool own = c.serving || c.replicated->alone() || last_word == Instant{};
  last_word = own ? c.now.boot : std::max(last_word, c.replicated->raft().heard());
  host->cut_off(c.now.boot, c.now.boot - last_word >= c.options.lease - kFreezeAhead);
}

void Node::Impl::answer_leases() {
  for (AnswerLease& answer : leases.take_answers()) {
    task::Task* task = host ? host->find(answer.id) : nullptr;
    const bool runs_on = host && c.ledger.behind() && host->unclaimed(answer.id);
    if (!runs_on && (task == nullptr || !task->lease_answered(answer.nonce, answer.granted))) continue;
    if (!answer.granted)
      c.log.write(LogLevel::warn, "lease.superseded", {{"task", answer.id.text()}, {"reason", "it is another host's, or nobody's"}});
    c.emit(std::move(answer));
  }
}

// A deposed coordinator may still be believed.
void Node::Impl::log_received(const LogReceived& e) {
  if (c.storage_failed || forming.log_changes()) return;
  struct Visitor {
    Impl& n;
    const MemberId& sender;
    void operator()(const wire::RaftMessage& message) { n.c.replicated->step(n.c.now.boot, raft::Received{message}); }
    void operator()(const wire::Forward& forward) { n.forwarded(forward); }
    void operator()(const wire::LeaseRequest& request) { n.leases.requested(sender, request); }
    void operator()(const wire::LeaseAnswer& answer) { n.leases.received(answer); }
  };
  std::visit(Visitor{*this, e.header.sender}, e.message);
}

}  // namespace dtrain::node
