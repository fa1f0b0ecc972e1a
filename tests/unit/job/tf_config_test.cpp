// TF_CONFIG against golden strings: tests/golden/tf_config/*.txt, one task a line, "role-index value"; "-" is
// not set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using testing::job_text;
using testing::parse_good;
using testing::view_of;

struct Topology {
  std::string name;
  std::string roles;
  std::string policy;
};

void PrintTo(const Topology& c, std::ostream* out) { *out << c.name; }

std::string roles(const std::vector<std::pair<std::string, int>>& list) {
  std::string out;
  for (const auto& [role, replicas] : list) out += "    " + role + ": {replicas: " + std::to_string(replicas) + ", command: [a]}\n";
  return out;
}

std::string read_golden(const std::string& name) {
  std::ifstream file(std::string(DTRAIN_SOURCE_DIR) + "/tests/golden/tf_config/" + name + ".txt");
  EXPECT_TRUE(file.is_open()) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class TfConfig : public ::testing::TestWithParam<Topology> {};

TEST_P(TfConfig, IsTheGoldenString) {
  const JobSpec spec = parse_good(job_text(GetParam().roles, "  policy: {" + GetParam().policy + "}"));
  const ClusterView view = view_of(spec);
  std::string lines;
  for (const auto& entry : view.tasks) lines += entry.first.text() + " " + tf_config(spec, view, entry.first).value_or("-") + "\n";
  EXPECT_EQ(lines, read_golden(GetParam().name));
}

const auto kPs = roles({{"ps", 2}, {"chief", 1}, {"worker", 2}});
const auto kEvaluator = roles({{"ps", 1}, {"chief", 1}, {"worker", 1}, {"evaluator", 1}});

INSTANTIATE_TEST_SUITE_P(Golden, TfConfig,
                         ::testing::Values(Topology{"ps", kPs, ""}, Topology{"single", roles({{"worker", 1}}), ""},
                                           Topology{"single_chief", roles({{"chief", 1}}), ""},
                                           Topology{"workers", roles({{"worker", 2}}), ""},
                                           Topology{"master", roles({{"ps", 1}, {"master", 1}, {"worker", 1}}), ""},
                                           Topology{"evaluator_self", kEvaluator, ""},
                                           Topology{"evaluator_never", kEvaluator, "evaluatorInCluster: never"},
                                           Topology{"evaluator_always", kEvaluator, "evaluatorInCluster: always"},
                                           Topology{"dynamic", kPs, "enableDynamicWorker: true"}),
                         [](const auto& p) { return p.param.name; });

TEST(TfConfigRules, ATaskThatIsNotInTheGenerationHasNone) {
  const JobSpec spec = parse_good(job_text(roles({{"worker", 2}})));
  EXPECT_FALSE(tf_config(spec, view_of(spec), {"worker", 2}));
}

// gRPC, urllib and others tell the port by the brackets.
TEST(TfConfigRules, AddressesOfIpv6HaveBrackets) {
  const JobSpec spec = parse_good(job_text(roles({{"worker", 2}})));
  ClusterView view = view_of(spec);
  view.tasks[{"worker", 1}].host = "fd00::1";
  EXPECT_EQ(tf_config(spec, view, {"worker", 0}),
            "{\"cluster\":{\"worker\":[\"10.0.0.1:20000\",\"[fd00::1]:20001\"]},\"task\":{\"type\":\"worker\",\"index\":0},"
            "\"environment\":\"cloud\"}");
  TaskView self;
  self.task = {"worker", 1};
  EXPECT_EQ(render_template("{hosts:worker} {host:worker:1} {task.address} {task.host} {task.port}", spec, view, self),
            "10.0.0.1:20000,[fd00::1]:20001 [fd00::1]:20001 [fd00::1]:20001 fd00::1 20001");
}

TEST(TfConfigRules, TextIsEscaped) {
  JobSpec spec = parse_good(job_text(roles({{"worker", 2}})));
  ClusterView view = view_of(spec);
  view.tasks[{"worker", 1}].host = "a\"b\\c\n";
  EXPECT_EQ(tf_config(spec, view, {"worker", 0}),
            "{\"cluster\":{\"worker\":[\"10.0.0.1:20000\",\"a\\\"b\\\\c\\u000a:20001\"]},\"task\":{\"type\":"
            "\"worker\",\"index\":0},"
            "\"environment\":\"cloud\"}");
}

}  // namespace
}  // namespace dtrain::job
