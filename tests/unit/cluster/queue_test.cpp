#include "common/cluster/queue.h"

#include <gmock/gmock.h>

#include <deque>
#include <map>

#include "tests/unit/cluster/hosts.h"

namespace dtrain::cluster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Jobs that come, start as the queue says, and end when told.
class Queue : public ::testing::Test {
 protected:
  explicit Queue(QueueOptions options = {}) : queue_(options) {}

  void hosts(std::vector<HostCapacity> hosts) { hosts_ = std::move(hosts); }
  JobId submit(std::uint32_t tasks, std::uint64_t cpus, std::int32_t priority = 0, Duration expected = 0s) {
    job::JobSpec spec = workers_job(tasks, cpus);
    spec.policy.priority = priority;
    spec.policy.expected = expected;
    spec.policy.stop_grace_period = 20s;
    return submit(std::move(spec));
  }
  JobId submit(job::JobSpec spec) {
    const JobId id = ++last_;
    spec.name = "j" + std::to_string(id);
    specs_[id] = std::move(spec);
    waiting_.push_back({id, &specs_[id], wanted_tasks(specs_[id]), now_, runs_for(specs_[id]), false, {}});
    return id;
  }
  void end(JobId id) {
    std::erase_if(running_, [&](const RunningJob& j) { return j.id == id; });
  }
  RunningJob& running(JobId id) {
    return *std::find_if(running_.begin(), running_.end(), [&](const RunningJob& j) { return j.id == id; });
  }

  // One decision, done. Returns who started.
  std::vector<JobId> decide() {
    Capacity free(hosts_);
    for (const RunningJob& job : running_) free.hold(*job.spec, job.placements);
    decision_ = queue_.decide(free, running_, waiting_, now_);
    std::vector<JobId> started;
    for (Start& start : decision_.starts) {
      const WaitingJob& job = waiting(start.job);
      RunningJob r{
          .id = job.id, .spec = job.spec, .placements = std::move(start.placements), .started = now_, .ends_by = {}, .run = job.run};
      if (job.runs_for) r.ends_by = now_ + *job.runs_for;
      running_.push_back(std::move(r));
      std::erase_if(waiting_, [&](const WaitingJob& j) { return j.id == start.job; });
      started.push_back(start.job);
    }
    return started;
  }
  WaitingJob& waiting(JobId id) {
    return *std::find_if(waiting_.begin(), waiting_.end(), [&](const WaitingJob& j) { return j.id == id; });
  }
  std::string reason(JobId id) const {
    for (const Waits& w : decision_.waits)
      if (w.job == id) return w.reason;
    return "does not wait";
  }
  // What was ended for another waits again, as another run.
  void waits_again(JobId id) {
    const std::uint64_t run = running(id).run + 1;
    end(id);
    waiting_.push_back({.id = id,
                        .spec = &specs_[id],
                        .tasks = wanted_tasks(specs_[id]),
                        .submitted = 0s,
                        .runs_for = {},
                        .standing = {},
                        .preempts = false,
                        .run = run});
  }
  std::vector<JobId> victims() const {
    std::vector<JobId> ids;
    for (const Preemption& p : decision_.preemptions) ids.push_back(p.victim);
    return ids;
  }

  JobQueue queue_;
  std::vector<HostCapacity> hosts_;
  std::map<JobId, job::JobSpec> specs_;
  std::vector<WaitingJob> waiting_;
  std::vector<RunningJob> running_;
  Decision decision_;
  Duration now_ = 1h;
  JobId last_ = 0;
};

TEST_F(Queue, PriorityThenAge) {
  hosts({host("h1", 4)});
  const JobId old_one = submit(1, 4), young = submit(1, 4), urgent = submit(1, 4, 5);
  EXPECT_THAT(decide(), ElementsAre(urgent));
  end(urgent);
  EXPECT_THAT(decide(), ElementsAre(old_one));
  end(old_one);
  EXPECT_THAT(decide(), ElementsAre(young));
}

TEST_F(Queue, WhoRanBeforeGoesFirstAmongEquals) {
  hosts({host("h1", 4)});
  const JobId a = submit(1, 4), b = submit(1, 4);
  waiting(b).resumes = true;
  EXPECT_THAT(decide(), ElementsAre(b));
  end(b);
  EXPECT_THAT(decide(), ElementsAre(a));
}

TEST_F(Queue, SmallJobsDoNotStarveABigOne) {
  hosts({host("h1", 4), host("h2", 4)});
  const JobId running_one = submit(1, 2);
  EXPECT_THAT(decide(), ElementsAre(running_one));
  const JobId big = submit(2, 4);
  std::vector<JobId> small;
  for (int i = 0; i < 4; ++i) small.push_back(submit(1, 2));
  EXPECT_THAT(decide(), IsEmpty()) << "6 cpus are free, and all of them are reserved";
  EXPECT_EQ(reason(big),
            "2 tasks of worker need 4000m CPU each, there is room for 1 (on 1 host, most on h2: 1); it is next "
            "in the queue, and waits for the end of j1");
  EXPECT_THAT(reason(small[0]), HasSubstr("there is room, but it is reserved for j2, which comes first"));
  end(running_one);
  EXPECT_THAT(decide(), ElementsAre(big));
  end(big);
  EXPECT_EQ(decide().size(), 4u);
}

TEST_F(Queue, BackFillTakesWhatTheReservationDoesNotNeed) {
  hosts({host("h1", 4), host("h2", 3)});
  const JobId first = submit(1, 2);
  ASSERT_THAT(decide(), ElementsAre(first));
  ASSERT_EQ(running(first).placements[0].node, "h2") << "the fullest host";
  end(first);
  running_.clear();
  const JobId on_h1 = submit(1, 3);
  hosts_[1].schedulable = false;
  ASSERT_THAT(decide(), ElementsAre(on_h1));
  hosts_[1].schedulable = true;
  const JobId big = submit(1, 4);    // only h1 can have it
  const JobId small = submit(1, 3);  // h2
  const JobId late = submit(1, 1);   // h1 has one left: it is the big one's
  EXPECT_THAT(decide(), ElementsAre(small));
  EXPECT_TRUE(decision_.starts[0].back_filled);
  end(on_h1);
  EXPECT_THAT(decide(), ElementsAre(big));
  end(big);
  EXPECT_THAT(decide(), ElementsAre(late));
}

TEST_F(Queue, BackFillMayUseTheReservedPlaceUntilItIsNeeded) {
  hosts({host("h1", 4)});
  const JobId first = submit(1, 3, 0, 600s);
  ASSERT_THAT(decide(), ElementsAre(first));
  const JobId big = submit(1, 4);
  const JobId too_long = submit(1, 1, 0, 601s), unknown = submit(1, 1), in_time = submit(1, 1, 0, 500s);
  EXPECT_THAT(decide(), ElementsAre(in_time));
  EXPECT_EQ(decision_.reservation->begins_by, now_ + 600s);
  EXPECT_THAT(reason(big), HasSubstr("at most 600 s"));
  EXPECT_THAT(reason(too_long), HasSubstr("reserved for j2"));
  EXPECT_THAT(reason(unknown), HasSubstr("expectedSeconds"));
  now_ += 100s;
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_EQ(decision_.reservation->begins_by, now_ + 500s) << "kept";
  now_ += 500s;
  end(in_time);
  end(first);
  EXPECT_THAT(decide(), ElementsAre(big));
}

TEST_F(Queue, ARunThatTakesLongerThanItSaidLetsNobodyGoAhead) {
  hosts({host("h1", 4)});
  const JobId first = submit(1, 3, 0, 10s);
  ASSERT_THAT(decide(), ElementsAre(first));
  submit(1, 4);
  now_ += 20s;
  submit(1, 1, 0, 1s);
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_FALSE(decision_.reservation->begins_by) << "nobody knows";
}

TEST_F(Queue, TwoJobsOfThreeQuartersRunOneAfterTheOther) {
  hosts({host("h1", 1), host("h2", 1), host("h3", 1), host("h4", 1)});
  const JobId a = submit(3, 1), b = submit(3, 1);
  EXPECT_THAT(decide(), ElementsAre(a));
  EXPECT_THAT(decide(), IsEmpty());
  end(a);
  EXPECT_THAT(decide(), ElementsAre(b));
}

TEST_F(Queue, AJobThatNeverFitsDelaysNobodyAndSaysWhy) {
  hosts({host("h1", 4), host("h2", 8)});
  const JobId never = submit(1, 9, 10), other = submit(1, 8);
  EXPECT_THAT(decide(), ElementsAre(other));
  EXPECT_FALSE(decision_.reservation);
  EXPECT_EQ(reason(never), "can never run here: worker-0 needs 9000m CPU on one host, best is 8000m on h2");
  hosts_.push_back(host("h3", 16));
  EXPECT_THAT(decide(), ElementsAre(never)) << "a host came";
}

TEST_F(Queue, TheFewestAndYoungestOfLowerPriorityMakeRoom) {
  hosts({host("h1", 4), host("h2", 4)});
  const JobId one = submit(1, 2, 1);
  decide();
  now_ += 1s;
  const JobId two = submit(1, 2, 1);
  decide();
  now_ += 1s;
  const JobId whole = submit(1, 4, 1);
  decide();
  now_ += 1s;
  const JobId urgent = submit(1, 4, 2);
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), ElementsAre(whole)) << "one job rather than two";
  EXPECT_EQ(decision_.preemptions[0].grace, 20s);
  EXPECT_THAT(reason(urgent), HasSubstr("makes room for its higher priority, at most 20 s"));
  running(whole).ending = true;
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), IsEmpty()) << "asked once";
  end(whole);
  EXPECT_THAT(decide(), ElementsAre(urgent));

  const JobId small = submit(1, 1, 2);
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), ElementsAre(two)) << "the younger of two alike";
  EXPECT_THAT(reason(small), HasSubstr("waits for the end of j2"));
  (void)one;
}

TEST_F(Queue, AVictimThatRunsElsewhereByThenIsNotEndedAgain) {
  hosts({host("h1", 4), host("h2", 4)});
  const JobId quick = submit(1, 2), slow = submit(1, 4);
  ASSERT_THAT(decide(), ElementsAre(quick, slow));
  hosts_.push_back(host("h3", 3));  // too small for the other
  const JobId urgent = submit(2, 4, 1);
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), ::testing::UnorderedElementsAre(quick, slow));
  running(slow).ending = true;
  waits_again(quick);
  EXPECT_THAT(decide(), ElementsAre(quick));
  EXPECT_EQ(running(quick).placements[0].node, "h3");
  EXPECT_THAT(victims(), IsEmpty());
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), IsEmpty()) << "it holds nothing that is needed";
  end(slow);
  EXPECT_THAT(decide(), ElementsAre(urgent));
}

// What ends by itself was to suffice, and did not: a job that recovers took its place again.
TEST_F(Queue, VictimsAreSoughtAnewWhereThoseThatEndedDidNotSuffice) {
  hosts({host("h1", 4), host("h2", 4)});
  const JobId low = submit(1, 4), goes_on = submit(1, 4, 2);
  ASSERT_THAT(decide(), ElementsAre(goes_on, low));
  running(goes_on).ending = true;
  const JobId urgent = submit(1, 4, 1);
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), IsEmpty());
  running(goes_on).ending = false;  // not as it was said
  ++running(goes_on).run;
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), ElementsAre(low));
  end(low);
  EXPECT_THAT(decide(), ElementsAre(urgent));
}

TEST_F(Queue, NobodyIsEndedForOneThatCountsOnThePlaceOfAnotherThatComesBackBeforeIt) {
  hosts({host("h1", 4)});
  const JobId before = submit(1, 2, 10), low = submit(1, 2, 0);
  ASSERT_THAT(decide(), ElementsAre(before, low));
  running(before).ending = running(before).returns = true;  // restarted by its user, say
  submit(2, 2, 5);
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), IsEmpty());
  running(before).returns = false;  // cancelled, after all
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), ElementsAre(low));
}

TEST_F(Queue, WhoComesBackBehindGivesItsPlace) {
  hosts({host("h1", 4)});
  const JobId low = submit(1, 2, 1), lowest = submit(1, 2, 0);
  ASSERT_THAT(decide(), ElementsAre(low, lowest));
  running(low).ending = running(low).returns = true;
  submit(2, 2, 5);
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), ElementsAre(lowest));
}

TEST_F(Queue, WhoMayNotEndOthersAndWhoIsSpared) {
  hosts({host("h1", 4)});
  const JobId low = submit(1, 4);
  ASSERT_THAT(decide(), ElementsAre(low));
  const JobId urgent = submit(1, 4, 1);
  waiting(urgent).preempts = false;
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), IsEmpty());
  EXPECT_TRUE(decision_.reservation) << "it is the first all the same";
  waiting(urgent).preempts = true;
  running(low).spared = true;
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), IsEmpty());
  running(low).spared = false;
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), ElementsAre(low));
}

TEST_F(Queue, NobodyMakesRoomForItsEqualOrWhereItWouldNotHelp) {
  hosts({host("h1", 4), host("h2", 4)});
  const JobId a = submit(1, 4, 1), b = submit(1, 3, 0);
  ASSERT_THAT(decide(), ElementsAre(a, b));
  submit(1, 4, 0);
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), IsEmpty());
  submit(2, 4, 1);  // b alone would not suffice, and a is its equal
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_THAT(victims(), IsEmpty());
}

TEST_F(Queue, MoreTasksOfARunningJobReserveNothing) {
  hosts({host("h1", 4)});
  const JobId a = submit(2, 2);
  ASSERT_THAT(decide(), ElementsAre(a));
  WaitingJob more{a, &specs_[a], {{"worker", 2}}, now_, {}, false, running(a).placements};
  specs_[a].roles["worker"].replicas = 3;
  waiting_.push_back(more);
  EXPECT_THAT(decide(), IsEmpty());
  EXPECT_FALSE(decision_.reservation);
  EXPECT_EQ(reason(a),
            "there is never room for all of it, so it goes on with fewer tasks: worker-2 needs 2000m CPU on one host, best is 0m on h1");
  hosts_.push_back(host("h2", 4));
  EXPECT_THAT(decide(), ElementsAre(a));
}

TEST_F(Queue, ALostHostMovesTheReservation) {
  hosts({host("h1", 4), host("h2", 4)});
  const JobId a = submit(1, 3), b = submit(1, 3);
  ASSERT_THAT(decide(), ElementsAre(a, b));
  const JobId big = submit(1, 4);
  decide();
  const NodeId reserved = decision_.reservation->placements[0].node;
  for (HostCapacity& h : hosts_) h.schedulable = h.id != reserved;
  decide();
  EXPECT_NE(decision_.reservation->placements[0].node, reserved);
  end(running(a).placements[0].node == reserved ? b : a);
  EXPECT_THAT(decide(), ElementsAre(big));
}

TEST_F(Queue, ADecisionIsBoundedAndSaysThatThereIsMore) {
  std::vector<HostCapacity> many;
  for (int i = 0; i < 5000; ++i) many.push_back(host("h" + std::to_string(i), 8));
  hosts(std::move(many));
  const std::size_t at_once = kHostLooks / 5001 + 1;
  for (std::size_t i = 0; i < at_once + 20; ++i) submit(1, 1);
  EXPECT_EQ(decide().size(), at_once);
  EXPECT_TRUE(decision_.more);
  EXPECT_EQ(decide().size(), 20u);
  EXPECT_FALSE(decision_.more);
}

TEST(QueueRunTime, TheShorterOfDeadlineAndWord) {
  job::JobSpec spec;
  EXPECT_EQ(runs_for(spec), std::nullopt);
  spec.policy.expected = 60s;
  EXPECT_EQ(runs_for(spec), 60s);
  spec.policy.active_deadline = 30s;
  EXPECT_EQ(runs_for(spec), 30s);
}

}  // namespace
}  // namespace dtrain::cluster
