// One real shim on this host, and what it wrote.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "agent/proc/record.h"
#include "common/task/log_format.h"
#include "tests/conformance/direct_world.h"

namespace dtrain::proc {

struct Output {
  std::string bytes[2];                 // by stream, over all files kept
  std::vector<AttemptNumber> attempts;  // of each record
  int files = 0;
};

class ShimWorld : public ::testing::Test {
 protected:
  void use(conformance::DirectWorld::Options options = {}) { world_ = std::make_unique<conformance::DirectWorld>(options); }
  ~ShimWorld() override {
    if (!world_) return;
    world_->runner().end(id_);
    EXPECT_TRUE(until<node::ShimGone>());
  }

  template <class E>
  const E* last() const {
    for (auto event = events_.rbegin(); event != events_.rend(); ++event)
      if (const auto* found = std::get_if<E>(&*event)) return found;
    return nullptr;
  }
  template <class E>
  bool until() {
    EventSink sink = [this](node::Event event) { events_.push_back(std::move(event)); };
    return world_->pump(sink, [this] { return last<E>() != nullptr; });
  }
  task::ShimSpec shell(const std::string& script) { return world_->command(id_, {"sh", "-c", script}); }
  void launch(const task::ShimSpec& spec) {
    world_->runner().launch(spec);
    ASSERT_TRUE(until<node::ShimUp>());
    ASSERT_TRUE(last<node::ShimUp>()->result) << last<node::ShimUp>()->result.error().text();
  }
  task::Exit attempt(AttemptNumber n) {
    events_.clear();
    world_->runner().start(id_, n);
    EXPECT_TRUE(until<node::AttemptExited>());
    return last<node::AttemptExited>() != nullptr ? last<node::AttemptExited>()->exit : task::Exit{};
  }
  task::Exit run(const task::ShimSpec& spec) {
    launch(spec);
    return attempt(1);
  }
  Output output() const {
    Output out;
    const std::string base = world_->directory(id_) + "/log.";
    for (int k = 0; k < 1000; ++k) {
      const auto raw = read_small_file(base + std::to_string(k), 64 << 20);
      const auto index = read_small_file(base + std::to_string(k) + ".idx", 64 << 20);
      if (!raw || !index) continue;
      ++out.files;
      for (std::size_t at = 0; at + sizeof(task::LogIndexRecord) <= index->size(); at += sizeof(task::LogIndexRecord)) {
        task::LogIndexRecord record;
        std::memcpy(&record, index->data() + at, sizeof record);
        out.bytes[record.stream] += raw->substr(record.offset, record.length);
        out.attempts.push_back(record.attempt);
      }
    }
    return out;
  }

  const AssignmentId id_{3, 2, {"worker", 1}};
  std::unique_ptr<conformance::DirectWorld> world_;
  std::vector<node::Event> events_;
};

}  // namespace dtrain::proc
