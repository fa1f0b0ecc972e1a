// Every story in tests/scenarios/*.txt goes as told; and the teller notices when one does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/scenarios/scenario.h"

namespace dtrain::sim {
namespace {

std::vector<std::string> stories() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(DTRAIN_SOURCE_DIR "/tests/scenarios"))
    if (entry.path().extension() == ".txt") out.push_back(entry.path().stem());
  std::sort(out.begin(), out.end());
  return out;
}

class Scenario : public testing::TestWithParam<std::string> {};

TEST_P(Scenario, GoesAsTold) {
  const std::string name = GetParam() + ".txt";
  std::ifstream in(DTRAIN_SOURCE_DIR "/tests/scenarios/" + name);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(run_scenario(name, text.str()), "");
}

INSTANTIATE_TEST_SUITE_P(Stories, Scenario, testing::ValuesIn(stories()), [](const auto& param) { return param.param; });

constexpr const char* kJob = "job digits generic\n  role worker 1 run=60000\nat 1s: submit digits\n";

TEST(Teller, NoticesAWrongStory) {
  EXPECT_EQ(run_scenario("f", std::string(kJob) + "by 5s: digits is Suspended"), "f:4: digits is Running");
}

TEST(Teller, RefusesWhatItDoesNotUnderstand) {
  EXPECT_EQ(run_scenario("f", std::string(kJob) + "at 2s: digits dances"), "f:4: not understood: digits dances ");
  EXPECT_EQ(run_scenario("f", "at 2s: nothing runs\nat 1s: nothing runs"), "f:2: time does not run backwards");
  EXPECT_EQ(run_scenario("f", "role worker 1"), "f:1: no job was begun before 'role'");
}

}  // namespace
}  // namespace dtrain::sim
