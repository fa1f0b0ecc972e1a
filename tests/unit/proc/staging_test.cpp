#include "agent/proc/staging.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pwd.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/unit/proc/staging_world.h"

namespace dtrain::proc {
namespace {

TEST_F(StagingTest, NoPackageIsAFreshDirectory) {
  const auto directory = staged(stage());
  ASSERT_TRUE(directory.has_value()) << directory.error().text();
  EXPECT_EQ(*directory, copy());
  EXPECT_TRUE(fs::is_empty(copy()));
}

TEST_F(StagingTest, PackageIsUnpackedOnceAndKept) {
  node::Stage effect = stage();
  effect.package_digest = package("aa11", "mkdir -p sub; echo code > sub/train.py; chmod 750 sub/train.py;");
  effect.work_dir = "sub";
  const auto first = staged(effect);
  ASSERT_TRUE(first.has_value()) << first.error().text();
  EXPECT_EQ(*first, copy() + "/sub");
  EXPECT_EQ(read_file(copy() + "/sub/train.py"), "code\n");
  std::ofstream(copy() + "/sub/written") << "by a task";

  node::Stage second = effect;
  second.id.task.index = 2;
  ASSERT_TRUE(staged(second).has_value());
  second.id.generation = 2;
  second.fresh = false;
  ASSERT_TRUE(staged(second).has_value());
  EXPECT_EQ(read_file(copy() + "/sub/written"), "by a task");

  // A restart with another package replaces it.
  second.id.generation = 3;
  second.fresh = true;
  second.package_digest = package("bb22", "mkdir sub; echo new > sub/train.py;");
  ASSERT_TRUE(staged(second).has_value());
  EXPECT_EQ(read_file(copy() + "/sub/train.py"), "new\n");
  EXPECT_FALSE(fs::exists(copy() + "/sub/written"));
  EXPECT_EQ(names_in_work_root(), (std::vector<std::string>{".17.origin", ".17.tmp", "17"}));

  // And one with none: nothing is noted then, and nothing of the former stays.
  second.id.generation = 4;
  second.package_digest.clear();
  second.work_dir.clear();
  ASSERT_TRUE(staged(second).has_value());
  EXPECT_EQ(names_in_work_root(), (std::vector<std::string>{".17.tmp", "17"}));
  EXPECT_TRUE(fs::is_empty(copy()));

  std::ofstream(copy() + "/written") << "by a task";
  second.id.generation = 5;
  ASSERT_TRUE(staged(second).has_value());
  EXPECT_EQ(read_file(copy() + "/written"), "by a task") << "it needs no other package than it was made from";
}

TEST_F(StagingTest, ManyTasksOfAJobDoNotRace) {
  node::Stage effect = stage();
  effect.package_digest = package("aa11", "for i in $(seq 200); do echo $i > file$i; done;");
  constexpr std::uint32_t kTasks = 40;
  for (std::uint32_t i = 1; i <= kTasks; ++i) {
    effect.id.task.index = i;
    stager_->stage(effect);
    if (i % 7 == 0) {  // some meet a child at work already
      EventSink none = [](node::Event) { FAIL() << "too early"; };
      if (i == 7) stager_->dispatch(Instant{}, none);
    }
  }
  const auto events = wait_for(kTasks);
  for (const node::Event& event : events) {
    const auto& answer = std::get<node::Staged>(event);
    EXPECT_TRUE(answer.work_dir.has_value()) << answer.work_dir.error().text();
  }
  EXPECT_EQ(read_file(copy() + "/file200"), "200\n");
  EXPECT_EQ(names_in_work_root(), (std::vector<std::string>{".17.origin", ".17.tmp", "17"}));
}

TEST_F(StagingTest, ErrorsNameWhatIsMissing) {
  node::Stage effect = stage();
  effect.work_dir = "/no/such/dir";
  auto refused = staged(effect);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "could not stage worker-1: working directory /no/such/dir does not exist");
  EXPECT_FALSE(refused.error().next.empty());

  effect.work_dir = "missing";
  refused = staged(effect);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("working directory missing (in the package) does not exist"), std::string::npos);

  effect = stage();
  effect.require_paths = {"/proc", "/no/data"};
  refused = staged(effect);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "could not stage worker-1: required path /no/data does not exist on this host");

  effect = stage();
  effect.user = {"no-such-user-here", 12345};
  refused = staged(effect);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "could not stage worker-1: could not find user no-such-user-here: this host has none");
}

// Another host may have the user, under that number.
TEST_F(StagingTest, AUserWhoIsNotOfThisHostIsItsRefusal) {
  for (const task::User& user : {task::User{"no-such-user-here", 12345}, task::User{"nobody", 12345}}) {
    node::Stage effect = stage();
    effect.user = user;
    const StageOutcome outcome = perform_stages(dirs_, {effect}, PortOwner::user).front();
    EXPECT_FALSE(outcome.ok);
    EXPECT_EQ(outcome.error.code, ErrorCode::unavailable);
    EXPECT_NE(outcome.host_refused.find(user.name), std::string::npos) << outcome.host_refused;
    EXPECT_FALSE(fs::exists(job_copy(dirs_, effect.id.job)));
  }
}

// Looked for once: what comes while the partial copy is removed makes no other failure of it. (Whether it comes in time to be seen
// is the scheduler's: hence several.)
TEST_F(StagingTest, APackageThatComesMeanwhileWasLacked) {
  package("cc33", "echo code > train.py;");
  const std::string blob = dirs_.blobs_dir + "/cc33", elsewhere = top_ / "cc33";
  fs::create_directories(dirs_.work_root);
  const UniqueFd watch(::inotify_init1(IN_CLOEXEC));
  ASSERT_GE(::inotify_add_watch(watch.get(), dirs_.work_root.c_str(), IN_DELETE), 0);
  for (JobId job = 20; job < 28; ++job) {
    fs::rename(blob, elsewhere);
    for (std::uint32_t index = 1; index <= 2; ++index) {
      node::Stage effect = stage(index);
      effect.id.job = job;
      effect.package_digest = "cc33";
      stager_->stage(effect);
    }
    EventSink nobody = [](const node::Event&) {};
    stager_->dispatch(Instant{}, nobody);
    pollfd removed{watch.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&removed, 1, kPatienceMs), 1);
    fs::rename(elsewhere, blob);
    std::array<char, 4096> told{};
    ASSERT_GT(::read(watch.get(), told.data(), told.size()), 0);
    const auto events = wait_for(2);
    ASSERT_EQ(events.size(), 2u);
    for (const node::Event& event : events) {
      const auto& answer = std::get<node::Staged>(event);
      EXPECT_FALSE(answer.work_dir);
      EXPECT_TRUE(answer.lacks_package) << answer.id.text();
    }
  }
  node::Stage again = stage();
  again.package_digest = "cc33";
  EXPECT_TRUE(staged(again));
}

TEST_F(StagingTest, WorkingDirectoryCannotLeaveThePackage) {
  node::Stage effect = stage();
  effect.package_digest = package("aa11", "ln -s / out; ln -s sub in; mkdir sub;");
  effect.work_dir = "../..";
  EXPECT_EQ(staged(effect).error().code, ErrorCode::refused);
  effect.work_dir = "out";
  const auto refused = staged(effect);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("leads out of the package"), std::string::npos);
  effect.work_dir = "in";
  EXPECT_TRUE(staged(effect).has_value());
}

TEST_F(StagingTest, DamagedPackagesLeaveNothingBehind) {
  node::Stage effect = stage();
  effect.package_digest = "dd";
  auto refused = staged(effect);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("cannot be read"), std::string::npos);

  std::ofstream(dirs_.blobs_dir + "/dd") << std::string(4096, 'x');
  refused = staged(effect);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::damaged);

  package("ee", "head -c 100000 /dev/zero > big;");
  fs::resize_file(dirs_.blobs_dir + "/ee", 50'000);
  effect.package_digest = "ee";
  refused = staged(effect);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::damaged);
  EXPECT_TRUE(names_in_work_root().empty());
}

TEST_F(StagingTest, AMemberThatClimbsOutIsRefused) {
  std::ofstream(top_ / "victim") << "old";
  const std::string command =
      "cd '" + top_.path() + "' && mkdir t && cd t && tar -P --create --file='" + dirs_.blobs_dir + "/cc' ../victim";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ofstream(top_ / "victim") << "new";
  node::Stage effect = stage();
  effect.package_digest = "cc";
  EXPECT_FALSE(staged(effect).has_value());
  EXPECT_EQ(read_file(top_ / "victim"), "new");
}

TEST_F(StagingTest, ATakenPortIsNamed) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  node::Stage effect = stage();
  effect.address = "127.0.0.1";
  effect.port = ntohs(address.sin_port);
  const std::string what = "could not stage worker-1: port " + std::to_string(effect.port) + " on 127.0.0.1 is used by ";
  // Staged here, it looks at no process; by a worker, it does.
  const auto refused = staged(effect);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, what + "a process of user id " + std::to_string(::geteuid()));
  effect.require_paths = {"/"};
  const auto by_worker = staged(effect);
  ASSERT_FALSE(by_worker.has_value());
  EXPECT_TRUE(by_worker.error().message.starts_with(what + "pid " + std::to_string(::getpid()) + " (")) << by_worker.error().message;
}

TEST_F(StagingTest, RunsAsTheUser) {
  if (::geteuid() != 0) return;  // without root there is only one user to be
  node::Stage effect = stage();
  effect.user = {"nobody", 65534};
  effect.package_digest = package("aa11", "echo x > file;");
  const auto directory = staged(effect);
  ASSERT_TRUE(directory.has_value()) << directory.error().text();
  struct stat info {};
  ASSERT_EQ(::stat((copy() + "/file").c_str(), &info), 0);
  EXPECT_EQ(name_of(info.st_uid), "nobody");
  ASSERT_EQ(::stat(copy().c_str(), &info), 0);
  EXPECT_EQ(name_of(info.st_uid), "nobody");

  fs::create_directory(top_ / "private");
  fs::permissions(top_ / "private", fs::perms(0700));
  effect.work_dir = top_ / "private";
  const auto refused = staged(effect);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("cannot be entered by user nobody"), std::string::npos) << refused.error().text();

  node::Stage own = stage();
  own.id.job = 18;
  own.work_dir = effect.work_dir;
  EXPECT_TRUE(staged(own).has_value()) << "whoever acted as nobody is itself again";
}

TEST_F(StagingTest, AFullDiskIsSaidAndLeavesNothing) {
  fs::create_directories(dirs_.work_root);
  if (::geteuid() != 0 || ::mount("dtrain-test", dirs_.work_root.c_str(), "tmpfs", 0, "size=256k,mode=755") != 0)
    return;  // needs the right to mount
  node::Stage effect = stage();
  effect.package_digest = package("aa11", "head -c 1000000 /dev/urandom > big;");
  const auto refused = staged(effect);
  EXPECT_FALSE(refused.has_value());
  if (!refused) {
    EXPECT_EQ(refused.error().code, ErrorCode::limit);
    EXPECT_NE(refused.error().message.find("no space left on the disk"), std::string::npos) << refused.error().text();
  }
  EXPECT_TRUE(names_in_work_root().empty());
  EXPECT_EQ(::umount2(dirs_.work_root.c_str(), MNT_DETACH), 0);
}

TEST_F(StagingTest, RemovesTheCopyAndWithLogsEverything) {
  ASSERT_TRUE(staged(stage()).has_value());
  fs::create_directories(dirs_.work_root + "/17/deep/er");
  fs::permissions(dirs_.work_root + "/17/deep", fs::perms(0500));
  for (const char* name : {"/17.1.worker-1", "/17.2.worker-1", "/170.1.worker-1"}) fs::create_directories(dirs_.tasks_dir + name);

  stager_->remove({17, node::JobFiles::copy});
  auto events = wait_for(1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(std::get<node::JobFilesRemoved>(events.front()).result.has_value());
  EXPECT_TRUE(names_in_work_root().empty());
  EXPECT_TRUE(fs::exists(dirs_.tasks_dir + "/17.1.worker-1"));

  stager_->remove({17, node::JobFiles::logs});
  events = wait_for(1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(std::get<node::JobFilesRemoved>(events.front()).result.has_value());
  EXPECT_FALSE(fs::exists(dirs_.tasks_dir + "/17.1.worker-1"));
  EXPECT_FALSE(fs::exists(dirs_.tasks_dir + "/17.2.worker-1"));
  EXPECT_TRUE(fs::exists(dirs_.tasks_dir + "/170.1.worker-1"));
}

TEST_F(StagingTest, TheTemporaryDirectoryIsTheUsersAndGoesAtTheJobsEnd) {
  const auto ends = [&] {
    stager_->remove({17, node::JobFiles::temporary});
    const auto events = wait_for(1);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_TRUE(std::get<node::JobFilesRemoved>(events.front()).result.has_value());
    EXPECT_EQ(names_in_work_root(), (std::vector<std::string>{"17"}));
  };
  for (const bool leaves : {true, false, true}) {
    ASSERT_TRUE(staged(stage()).has_value()) << "also where the copy is kept";
    const std::string temporary = job_temporary(dirs_.work_root, 17);
    EXPECT_EQ(fs::status(temporary).permissions(), fs::perms(0700));
    if (leaves) {
      fs::create_directories(temporary + "/pymp-1/deep");
      std::ofstream(temporary + "/pymp-1/deep/file") << "left";
      fs::create_directory_symlink(copy(), temporary + "/link");
      std::ofstream(copy() + "/result") << "kept";
    }
    ends();
    EXPECT_EQ(read_file(copy() + "/result"), "kept") << "nothing but the temporary directory goes";
  }
  ends();  // there is none
}

TEST_F(StagingTest, RemovalWaitsForStagingAndStagingForRemoval) {
  stager_->stage(stage());
  stager_->remove({17, node::JobFiles::copy});
  stager_->stage(stage(2));
  const auto events = wait_for(3);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<node::Staged>(events[0]));
  EXPECT_TRUE(std::holds_alternative<node::JobFilesRemoved>(events[1]));
  EXPECT_TRUE(std::holds_alternative<node::Staged>(events[2]));
  EXPECT_TRUE(fs::exists(copy()));
}

TEST_F(StagingTest, OneWorkerDoesOneErrandAfterAnother) {
  const auto workers = workers_of_this();
  ASSERT_EQ(workers.size(), 1u) << "it is there before the first errand";
  for (std::uint32_t index = 1; index < 4; ++index) ASSERT_TRUE(staged(for_a_worker(index)).has_value());
  EXPECT_EQ(workers_of_this(), workers);
}

TEST_F(StagingTest, WhatIsBriefNeedsNoWorker) {
  const auto workers = workers_of_this();
  ASSERT_EQ(::kill(workers.front(), SIGSTOP), 0);
  for (std::uint32_t index = 1; index < 4; ++index) {
    EXPECT_TRUE(staged(stage(index)).has_value());
    node::Stage again = stage(index);  // of a job whose copy there is
    again.fresh = false;
    EXPECT_TRUE(staged(again).has_value());
  }
  EXPECT_EQ(workers_of_this(), workers);
}

TEST_F(StagingTest, WhatTakesLongerIsAWorkers) {
  ASSERT_EQ(::kill(workers_of_this().front(), SIGSTOP), 0);
  EventSink none = [](node::Event) { ADD_FAILURE() << "an answer"; };
  for (std::uint32_t index = 0; index < 9; ++index) {  // more than kBriefStages
    stager_->stage(stage(index));
    if (index == kBriefStages) stager_->dispatch(Instant{}, none);
  }
  node::Stage other = stage();
  for (const auto change : {+[](node::Stage& s) { s.package_digest = "aa11"; }, +[](node::Stage& s) { s.work_dir = "/"; },
                            +[](node::Stage& s) { s.require_paths = {"/"}; }}) {
    node::Stage effect = other;
    effect.id.job += 1;
    change(effect);
    EXPECT_FALSE(is_brief(dirs_, effect));
  }
  // What an earlier life has left half-made is cleared away by whoever may take long.
  other.id.job = 99;
  EXPECT_TRUE(is_brief(dirs_, other));
  fs::create_directories(dirs_.work_root + "/.99.partial");
  EXPECT_FALSE(is_brief(dirs_, other));
  ASSERT_EQ(::kill(workers_of_this().front(), SIGCONT), 0);
  EXPECT_EQ(wait_for(9).size(), 9u);
}

TEST_F(StagingTest, JobsAreWorkedOnBesideEachOtherByAtMostFourOfAUser) {
  ASSERT_EQ(::mkfifo((dirs_.blobs_dir + "/ff").c_str(), 0600), 0);  // whoever opens it waits
  EventSink sink = [](node::Event) { ADD_FAILURE() << "an answer"; };
  for (std::uint64_t job = 1; job < 8; ++job) {
    node::Stage effect = stage();
    effect.id.job = job;
    effect.package_digest = "ff";
    stager_->stage(effect);
    stager_->dispatch(Instant{}, sink);
    EXPECT_EQ(workers_of_this().size(), std::min<std::size_t>(job, kStagingWorkersOfUser));
  }
}

TEST_F(StagingTest, WhatIsBriefWaitsForNoOtherJob) {
  ASSERT_EQ(::mkfifo((dirs_.blobs_dir + "/ff").c_str(), 0600), 0);
  for (std::uint64_t job = 1; job < 8; ++job) {
    node::Stage effect = stage();
    effect.id.job = job;
    effect.package_digest = "ff";
    stager_->stage(effect);
  }
  for (std::uint32_t index = 1; index < 4; ++index) EXPECT_TRUE(staged(stage(index)).has_value());
  EXPECT_EQ(workers_of_this().size(), kStagingWorkersOfUser);
}

TEST_F(StagingTest, OneUserDoesNotHaveAllWorkers) {
  if (::geteuid() != 0) return;
  ASSERT_EQ(::mkfifo((dirs_.blobs_dir + "/ff").c_str(), 0600), 0);
  for (std::uint64_t job = 1; job < 8; ++job) {
    node::Stage effect = stage();
    effect.id.job = job;
    effect.package_digest = "ff";
    stager_->stage(effect);
  }
  node::Stage other = for_a_worker(1);
  other.id.job = 99;
  other.user = {"nobody", 65534};
  EXPECT_TRUE(staged(other).has_value());
}

TEST_F(StagingTest, AWorkerThatDiedIdleIsReplaced) {
  const auto workers = workers_of_this();
  ASSERT_EQ(::kill(workers.front(), SIGKILL), 0);
  ASSERT_TRUE(staged(for_a_worker(1)).has_value());
  EXPECT_NE(workers_of_this(), workers);
}

TEST_F(StagingTest, AWorkerThatDiesAtWorkIsReplacedOnceAndThenNamed) {
  ASSERT_EQ(::mkfifo((dirs_.blobs_dir + "/ff").c_str(), 0600), 0);
  node::Stage effect = stage();
  effect.package_digest = "ff";
  stager_->stage(effect);
  EventSink none = [](node::Event) { ADD_FAILURE() << "an answer"; };
  stager_->dispatch(Instant{}, none);
  const pid_t first = workers_of_this().front();
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  std::vector<pid_t> workers;  // the first is still one of them until it is dead
  while (workers = workers_of_this(), workers.empty() || workers.front() == first) {
    pollfd ready{stager_->fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, kPatienceMs), 1);
    stager_->dispatch(Instant{}, none);
  }
  ASSERT_EQ(::kill(workers.front(), SIGKILL), 0);
  for (const node::Event& event : wait_for(1))
    EXPECT_EQ(std::get<node::Staged>(event).work_dir.error().message,
              "could not stage worker-1: its helper process gave no answer (signal 9)");
  EXPECT_TRUE(staged(stage(2)).has_value());
}

TEST_F(StagingTest, AFailureThatIsAnsweredByMoreWorkOnTheJobIsNoTrap) {
  const auto needs_a_worker = [&](std::uint32_t index) {
    node::Stage effect = stage(index);
    effect.package_digest = "aa11";
    return effect;
  };
  stager_->stage(needs_a_worker(1));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};  // no errand can be started
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::size_t failures = 0;
  EventSink sink = [&](node::Event event) {
    EXPECT_FALSE(std::get<node::Staged>(event).work_dir.has_value());
    if (++failures == 1) stager_->stage(needs_a_worker(2));
  };
  stager_->dispatch(Instant{}, sink);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(failures, 2u);
  EXPECT_TRUE(staged(stage(3)).has_value());
}

TEST_F(StagingTest, AHungErrandIsGivenUp) {
  // A package that never ends: tar waits for more.
  ASSERT_EQ(::mkfifo((dirs_.blobs_dir + "/ff").c_str(), 0600), 0);
  node::Stage effect = stage();
  effect.package_digest = "ff";
  stager_->stage(effect);
  std::vector<node::Event> events;
  EventSink sink = [&](node::Event event) { events.push_back(std::move(event)); };
  stager_->dispatch(Instant{}, sink);
  EXPECT_EQ(stager_->deadline(), Instant{} + kStagingTime);
  stager_->dispatch(stager_->deadline(), sink);
  EXPECT_EQ(stager_->deadline(), kNever);
  for (const node::Event& event : wait_for(1))
    EXPECT_NE(std::get<node::Staged>(event).work_dir.error().message.find("took longer than"), std::string::npos);
}

}  // namespace
}  // namespace dtrain::proc
