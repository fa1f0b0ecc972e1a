// Who changed what: an event for each change that somebody asked for, and none for what changed nothing.
#include <gmock/gmock.h>

#include <functional>

#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

using ::testing::ElementsAre;

class LedgerAudit : public LedgerWorld {
 protected:
  const Asker bob_{"bob", 1001, "n2"};

  JobId submitted(const job::JobSpec& spec, bool replace = false, job::User user = {"bob", 1001}) {
    const Applied a = apply(CommandType::submit, SubmitJob{wire::encode(spec), std::move(user), "", replace, "", bob_});
    forbidden_ = a.forbidden;
    return a.job;
  }
  Applied did(
      JobId id, ActionKind kind, const std::function<void(JobAction&)>& edit = [](JobAction&) {}) {
    JobAction a;
    a.kind = kind;
    a.job = id;
    a.user = "bob";
    a.asker = bob_;
    edit(a);
    return apply(CommandType::action, a);
  }
  Applied drain(bool on, const std::string& reason = "disk", Duration within = {}) {
    return apply(CommandType::drain_host, DrainHost{"id-of-n1", "n1", reason, "bob", on, within, bob_});
  }
  // "audit.cancel j: REASON"
  std::vector<std::string> audits() const {
    std::vector<std::string> all;
    for (const LedgerEvent& e : ledger_.events())
      if (e.type.starts_with("audit.")) all.push_back(e.type + " " + e.object + (e.reason.empty() ? "" : ": " + e.reason));
    return all;
  }
  static std::string text(const LedgerEvent& e) {
    std::string all;
    for (const EventField& d : e.details) all += (all.empty() ? "" : " ") + d.key + "=" + d.value;
    return all;
  }

  bool forbidden_ = false;
};

TEST_F(LedgerAudit, EachVerbHasItsEventBehindWhatCameOfIt) {
  const JobId id = submitted(generic_job(2));
  EXPECT_EQ(ledger_.events().back().type, "audit.submit");
  EXPECT_EQ(text(ledger_.events().back()), "job=j user=bob uid=1001 at=n2 outcome=accepted");
  EXPECT_EQ(ledger_.events().back().job, id);
  EXPECT_TRUE(did(id, ActionKind::scale, [](JobAction& a) { a.role = "worker", a.replicas = 3; }).status);
  EXPECT_TRUE(did(id, ActionKind::suspend).status);
  EXPECT_TRUE(did(id, ActionKind::resume).status);
  EXPECT_TRUE(did(id, ActionKind::restart, [](JobAction& a) { a.from_scratch = true, a.package_digest = "abc"; }).status);
  EXPECT_TRUE(did(id, ActionKind::cancel).status);
  EXPECT_TRUE(did(id, ActionKind::rerun).status);
  EXPECT_TRUE(did(id, ActionKind::remove, [](JobAction& a) { a.force = true; }).status);
  EXPECT_EQ(ledger_.find(id), nullptr) << "its event outlives it";
  EXPECT_TRUE(drain(true).status);
  EXPECT_TRUE(drain(false).status);
  EXPECT_THAT(audits(), ElementsAre("audit.submit j", "audit.scale j: worker to 3", "audit.suspend j", "audit.resume j",
                                    "audit.restart j: from scratch, with package abc", "audit.cancel j", "audit.rerun j",
                                    "audit.delete j: whatever its state", "audit.drain n1: disk", "audit.undrain n1"));
  EXPECT_EQ(text(ledger_.events().back()), "node=n1 user=bob uid=1001 at=n2 outcome=accepted");
}

// Somebody who asks again and again for what is so already fills no history.
TEST_F(LedgerAudit, WhatChangesNothingHasNone) {
  const JobId id = submitted(generic_job(2));
  submitted(generic_job(2));
  EXPECT_FALSE(did(id, ActionKind::resume).status);
  did(id, ActionKind::suspend);
  did(id, ActionKind::suspend);
  EXPECT_FALSE(did(id, ActionKind::scale, [](JobAction& a) { a.role = "nobody"; }).status);
  did(id, ActionKind::scale, [](JobAction& a) { a.role = "worker", a.replicas = 2; });
  did(id, ActionKind::cancel);
  did(id, ActionKind::cancel);
  drain(false);
  drain(true);
  drain(true);
  drain(true, "disk", 10min);
  EXPECT_THAT(audits(), ElementsAre("audit.submit j", "audit.suspend j", "audit.cancel j", "audit.drain n1: disk", "audit.drain n1: disk"));
}

TEST_F(LedgerAudit, ReplacingAnothersJobIsForbiddenAndNoChange) {
  const JobId id = submitted(generic_job(1));
  did(id, ActionKind::cancel);
  submitted(generic_job(2), true, {"eve", 1002});
  EXPECT_TRUE(forbidden_);
  submitted(generic_job(2), false);
  EXPECT_FALSE(forbidden_) << "a conflict is none";
  const JobId next = submitted(generic_job(2), true);
  EXPECT_NE(next, 0u);
  EXPECT_THAT(audits(), ElementsAre("audit.submit j", "audit.cancel j", "audit.submit j: in the place of one that has ended"));
}

// Of an agent that does not say who asked.
TEST_F(LedgerAudit, CommandsOfOlderAgentsApplyAsTheyDid) {
  const JobId id = submit(generic_job(1));
  act(id, ActionKind::cancel);
  apply(CommandType::drain_host, DrainHost{"n1", "n1", "", "alice", true, {}});
  EXPECT_THAT(audits(), ElementsAre());
  EXPECT_THAT(event_types(), ::testing::Contains("node.drained"));
}

}  // namespace
}  // namespace dtrain::cluster
