// What a program does with entries and snapshots of a later version of the ledger than it knows.
#include <gmock/gmock.h>

#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kLater = wire::kRehearsal.version;

class Versions : public LedgerWorld {
 protected:
  Versions() { ledger_.knows = kLater; }
  static job::JobSpec later_job(const std::string& name) {
    job::JobSpec spec = generic_job(1, name);
    spec.rehearsal = "it";
    return spec;
  }
  Applied submit_of(const job::JobSpec& spec) {
    return apply(CommandType::submit, SubmitJob{wire::encode(spec), {"alice", 1000}, "", false, ""});
  }
  // The same log, read by a program that knows no more than this.
  Ledger read_by(std::uint32_t knows, std::size_t entries) const {
    Ledger other;
    other.knows = knows;
    for (std::size_t i = 0; i < entries; ++i) other.apply(i + 1, log_[i]);
    return other;
  }
};

TEST_F(Versions, TheFirstIsWrittenAsItAlwaysWas) {
  EXPECT_EQ(ledger_.state().version, kFirstVersion);
  EXPECT_EQ(wire::needed_version(generic_job(1)), kFirstVersion);
  EXPECT_EQ(wire::needed_version(later_job("j")), kLater);
  EXPECT_THAT(wire::encode(generic_job(1)), testing::Not(HasSubstr("rehearsal"))) << "older programs would not know it";
  EXPECT_THAT(ledger_.snapshot(), testing::Not(HasSubstr("rehearsal")));
}

TEST_F(Versions, WhatNeedsALaterOneIsRefusedByAllBeforeTheLedgerHasIt) {
  const Applied refused = submit_of(later_job("early"));
  EXPECT_FALSE(refused.status);
  EXPECT_EQ(ledger_.find("early"), nullptr);
  const Ledger older = read_by(kFirstVersion, log_.size());
  EXPECT_FALSE(older.behind());
  EXPECT_EQ(older.snapshot(), ledger_.snapshot()) << "the refusal is the same where the field is not known";
}

TEST_F(Versions, RaisedItIsUsedAndWhoDoesNotKnowItStopsAtTheEntry) {
  submit(generic_job(1, "before"));
  const std::size_t known = log_.size();
  const std::string state = ledger_.snapshot();
  ASSERT_TRUE(apply(CommandType::raise_version, RaiseVersion{kLater}).status);
  EXPECT_EQ(ledger_.state().version, kLater);
  EXPECT_EQ(ledger_.events().back().type, "ledger.version");
  ASSERT_TRUE(submit_of(later_job("later")).status);
  EXPECT_EQ(ledger_.state().rehearsals, 1u);
  submit(generic_job(1, "after"));

  const Ledger older = read_by(kFirstVersion, log_.size());
  ASSERT_TRUE(older.behind());
  EXPECT_EQ(older.behind()->index, known + 1);
  EXPECT_EQ(older.behind()->needs, kLater);
  EXPECT_EQ(older.state().applied, known) << "nothing is skipped";
  EXPECT_EQ(older.snapshot(), state);
  EXPECT_EQ(read_by(kLater, log_.size()).snapshot(), ledger_.snapshot());
}

TEST_F(Versions, AnEntryThatCannotBeDecodedStopsTheLedgerThereAndChangesNothing) {
  submit(generic_job(1, "before"));
  pass(5s);
  const std::string state = ledger_.snapshot();
  const auto entry = [&](const std::string& body, std::uint64_t type) {
    wire::Writer w;
    w.map(5);
    w.text("n"), w.natural(1), w.text("e"), w.natural(epoch_ + 1), w.text("at"), w.integer(clock_.count());
    w.text("t"), w.natural(type), w.text("b"), w.text(body);
    return w.take();
  };
  wire::Writer extra;
  extra.map(2);
  extra.text("job"), extra.natural(1), extra.text("novelty"), extra.natural(1);
  const std::string unknown_field = extra.take();
  for (const auto& [payload, cause] : std::vector<std::pair<std::string, std::string>>{
           {entry("x", 8), "could not decode"},                                  // a body that is none
           {entry(unknown_field, 8), "unknown field novelty"},                   // forget, with a field of the future
           {entry(wire::encode(ForgetJob{1}), 4'000'000'000), "unknown value"},  // a type of the future
           {"garbage", "could not"}}) {
    Ledger ledger = *Ledger::restore(ledger_.snapshot(), log_.size());
    const Applied result = ledger.apply(log_.size() + 1, payload);
    ASSERT_FALSE(result.status);
    ASSERT_TRUE(ledger.behind()) << cause;
    EXPECT_THAT(ledger.behind()->cause, HasSubstr(cause));
    EXPECT_EQ(ledger.behind()->needs, 0u) << "nobody knows which";
    EXPECT_EQ(ledger.snapshot(), state);
    EXPECT_FALSE(ledger.apply(log_.size() + 2, wire::encode(Command{})).status) << "nor is anything applied behind it";
    ledger.skip(log_.size() + 2);
    EXPECT_EQ(ledger.snapshot(), state);
  }
}

TEST_F(Versions, ASnapshotOfALaterOneIsNotRead) {
  ASSERT_TRUE(apply(CommandType::raise_version, RaiseVersion{kLater}).status);
  submit_of(later_job("later"));
  const auto older = Ledger::restore(ledger_.snapshot(), 7);
  ASSERT_FALSE(older);
  EXPECT_EQ(older.error().needs, kLater);
  EXPECT_EQ(older.error().index, 7u);
  const auto again = Ledger::restore(ledger_.snapshot(), 7, kLater);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->snapshot(), ledger_.snapshot());
  const auto damaged = Ledger::restore(ledger_.snapshot().substr(0, 40), 7, kLater);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().needs, 0u);
  EXPECT_FALSE(Ledger::restore("junk", 7));
}

TEST_F(Versions, RaisingItTwiceOrLowerChangesNothing) {
  ASSERT_TRUE(apply(CommandType::raise_version, RaiseVersion{kLater}).status);
  const auto events = ledger_.state().next_event;
  ASSERT_TRUE(apply(CommandType::raise_version, RaiseVersion{kLater}).status);
  ASSERT_TRUE(apply(CommandType::raise_version, RaiseVersion{kFirstVersion}).status);
  EXPECT_EQ(ledger_.state().version, kLater);
  EXPECT_EQ(ledger_.state().next_event, events);
}

TEST_F(Versions, WhatACommandNeedsIsKnownBeforeItIsProposed) {
  EXPECT_EQ(version_needed(CommandType::forget, wire::encode(ForgetJob{1})).value(), kFirstVersion);
  EXPECT_EQ(version_needed(CommandType::raise_version, wire::encode(RaiseVersion{kLater})).value(), kLater);
  const auto submit_body = [](const job::JobSpec& spec) { return wire::encode(SubmitJob{wire::encode(spec), {"a", 1}, "", false, ""}); };
  EXPECT_EQ(version_needed(CommandType::submit, submit_body(later_job("j"))).value(), kLater);
  EXPECT_EQ(version_needed(CommandType::submit, submit_body(generic_job(1))).value(), kFirstVersion);
  EXPECT_FALSE(version_needed(CommandType::submit, wire::encode(SubmitJob{"x", {"a", 1}, "", false, ""}))) << "nobody could apply it";
  EXPECT_FALSE(version_needed(CommandType::forget, "x"));
}

}  // namespace
}  // namespace dtrain::cluster
