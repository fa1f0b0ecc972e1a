#include "common/transfer/tf_checkpoint_state.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "common/transfer/selection.h"

namespace dtrain::transfer {
namespace {

TEST(CheckpointStateFile, ReadsWhatTensorFlowWrites) {
  const auto state = parse_checkpoint_state(
      "model_checkpoint_path: \"model.ckpt-2\"\n"
      "all_model_checkpoint_paths: \"model.ckpt-1\"\n"
      "all_model_checkpoint_paths: \"/abs/model.ckpt-2\"\n"
      "all_model_checkpoint_timestamps: 1637325660.0521\n"
      "all_model_checkpoint_timestamps: 1.6e+09\n"
      "last_preserved_timestamp: 1637325659.8\n");
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(state->model_checkpoint_path, "model.ckpt-2");
  EXPECT_EQ(state->all_model_checkpoint_paths, (std::vector<std::string>{"model.ckpt-1", "/abs/model.ckpt-2"}));
  EXPECT_EQ(state->all_model_checkpoint_timestamps, (std::vector<std::string>{"1637325660.0521", "1.6e+09"}));
  EXPECT_EQ(state->last_preserved_timestamp, "1637325659.8");
}

TEST(CheckpointStateFile, ReadsTheRestOfTheSyntax) {
  const auto state = parse_checkpoint_state("# hint\nmodel_checkpoint_path:'a\\'\\n\\101\\x42' \"c\";later: 5, other: \"x\"");
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(state->model_checkpoint_path, "a'\nABc");
  EXPECT_TRUE(parse_checkpoint_state(""));
}

TEST(CheckpointStateFile, RefusesJunk) {
  for (const char* junk : {"x", "x:", ":", "model_checkpoint_path: 5", "model_checkpoint_path: \"open", "model_checkpoint_path: \"\\q\"",
                           "model_checkpoint_path: \"\\400\"", "model_checkpoint_path { }", "\x01\x02"})
    EXPECT_FALSE(parse_checkpoint_state(junk)) << junk;
  EXPECT_FALSE(parse_checkpoint_state(std::string(kCheckpointStateBytes + 1, ' ')));
}

RC_GTEST_PROP(CheckpointStateFile, EveryPathSurvives, (std::string newest, std::vector<std::string> all)) {
  CheckpointState state;
  state.model_checkpoint_path = newest;
  state.all_model_checkpoint_paths = all;
  const auto read = parse_checkpoint_state(render_checkpoint_state(state));
  RC_ASSERT(read.has_value());
  RC_ASSERT(read->model_checkpoint_path == newest);
  RC_ASSERT(read->all_model_checkpoint_paths == all);
}

TEST(CheckpointStateFile, DropKeepsTheStyleOfThePaths) {
  CheckpointState state;
  state.model_checkpoint_path = "./m-2";
  state.all_model_checkpoint_paths = {"m-1", "/d/m-2"};
  state.all_model_checkpoint_timestamps = {"1"};  // not one per path: of no use to anybody
  EXPECT_FALSE(drop_from_state(state, "/d", "/d/m-3", "/d/m-1"));
  EXPECT_TRUE(drop_from_state(state, "/d/", "/d/m-2", "/d/m-1"));
  EXPECT_EQ(state.model_checkpoint_path, "m-1");
  EXPECT_EQ(state.all_model_checkpoint_paths, std::vector<std::string>{"m-1"});
  EXPECT_TRUE(state.all_model_checkpoint_timestamps.empty());
  state.model_checkpoint_path = "/d/m-1";
  EXPECT_TRUE(drop_from_state(state, "/d", "/d/m-1", "/d/m-0"));
  EXPECT_EQ(state.model_checkpoint_path, "/d/m-0");
}

TEST(Selection, NamesThatAreNeverLookedAt) {
  for (const std::string& ignored : {std::string("step-1.tmp"), std::string(".tmp"), quarantined_name("step-1", 12, false),
                                     quarantined_name("checkpoint-1", 12, true), std::string("MANIFEST.json.quarantined-1")})
    EXPECT_TRUE(is_ignored_name(ignored)) << ignored;
  for (const char* seen : {"step-1", "tmp", "x.quarantined-", "x.quarantined-1a", ".hidden", "x.quarantined-1.index"})
    EXPECT_FALSE(is_ignored_name(seen)) << seen;
}

TEST(Selection, NewestFirst) {
  std::vector<Candidate> candidates(4);
  const auto set = [&](std::size_t i, const char* path, std::int64_t step, std::int64_t changed) {
    candidates[i].info.path = path;
    candidates[i].info.step = step;
    candidates[i].changed_ns = changed;
  };
  set(0, "a", 1, 9);
  set(1, "b", 3, 1);
  set(2, "c", 3, 2);
  set(3, "d", 3, 2);
  sort_newest_first(candidates);
  std::string order;
  for (const auto& candidate : candidates) order += candidate.info.path;
  EXPECT_EQ(order, "dcba");
}

}  // namespace
}  // namespace dtrain::transfer
