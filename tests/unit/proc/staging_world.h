// A Stager with directories of its own, and jobs for it.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "agent/proc/staging.h"
#include "tests/unit/proc/log_files.h"
#include "tests/unit/proc/processes.h"

namespace dtrain::proc {

namespace fs = std::filesystem;
using testing::ScratchDir;

inline std::string name_of(uid_t uid) {
  const passwd* record = ::getpwuid(uid);
  return record != nullptr ? record->pw_name : "";
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class StagingTest : public ::testing::Test {
 protected:
  StagingTest() {
    fs::permissions(top_.path(), fs::perms(0755));
    fs::create_directories(dirs_.blobs_dir);
    stager_ = std::move(*Stager::open(dirs_));
  }

  node::Stage stage(std::uint32_t index = 1) const {
    node::Stage effect;
    effect.id = AssignmentId{17, 1, TaskId{"worker", index}};
    effect.job_name = "digits";
    effect.user = {name_of(::geteuid()), ::geteuid()};
    effect.work_dir = ".";
    return effect;
  }

  // With something to look for.
  node::Stage for_a_worker(std::uint32_t index) const {
    node::Stage effect = stage(index);
    effect.require_paths = {"/"};
    return effect;
  }

  // A package of what `fill` puts into an empty directory. The digest is only a name here.
  std::string package(const std::string& digest, const std::string& shell) const {
    const std::string source = top_ / ("source-" + digest);
    fs::create_directories(source);
    const std::string command =
        "cd '" + source + "' && { " + shell + " } && tar --create --file='" + dirs_.blobs_dir + "/" + digest + "' .";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return digest;
  }

  // Runs the stager until `count` events came.
  std::vector<node::Event> wait_for(std::size_t count) {
    std::vector<node::Event> events;
    EventSink sink = [&](node::Event event) { events.push_back(std::move(event)); };
    while (events.size() < count) {
      pollfd ready{stager_->fd(), POLLIN, 0};
      if (::poll(&ready, 1, kPatienceMs) != 1) {
        ADD_FAILURE() << "no answer";
        break;
      }
      stager_->dispatch(Instant{}, sink);
    }
    return events;
  }
  Result<std::string> staged(const node::Stage& effect) {
    stager_->stage(effect);
    const auto events = wait_for(1);
    if (events.empty()) return fail(ErrorCode::internal, "no answer");
    const auto* answer = std::get_if<node::Staged>(&events.front());
    EXPECT_NE(answer, nullptr);
    EXPECT_EQ(answer->id, effect.id);
    return answer->work_dir;
  }
  // The processes that stage for this one: all children but the fork server, which they are named like at first.
  static std::vector<pid_t> workers_of_this() {
    for (int i = 0; i < 1000; ++i) {
      std::vector<pid_t> workers;
      std::size_t others = 0;
      for (const pid_t child : testing::children_of(::getpid()))
        if (read_file("/proc/" + std::to_string(child) + "/comm") == "dtraind-stage\n") workers.push_back(child);
        else ++others;
      if (others == 1) return workers;
      ::usleep(10'000);
    }
    ADD_FAILURE() << "other children than workers and the fork server";
    return {};
  }
  std::string copy() const { return dirs_.work_root + "/17"; }
  std::vector<std::string> names_in_work_root() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dirs_.work_root)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  static constexpr int kPatienceMs = 60'000;
  ScratchDir top_;
  StageDirs dirs_{top_ / "work", top_ / "blobs", top_ / "tasks"};
  std::unique_ptr<Stager> stager_;
};

}  // namespace dtrain::proc
