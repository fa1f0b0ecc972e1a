// Which commands have a standby, and what a job says of it.
#include "common/job/warm.h"

#include <gtest/gtest.h>

#include "common/job/manifest.h"

namespace dtrain::job {
namespace {

using Words = std::vector<std::string>;

TEST(Warm, TheTargetFollowsTheInterpretersOptions) {
  EXPECT_EQ(python_target({"python3", "train.py", "-m", "x"}), 1u);
  EXPECT_EQ(python_target({"/usr/bin/python3.11", "-u", "-OO", "-W", "ignore", "-Xdev", "-X", "importtime", "train.py"}), 8u);
  EXPECT_EQ(python_target({"python", "-Bu", "-m", "package.main", "--lr", "1"}), 2u);
  for (const Words& other : {Words{},
                             {"python3"},
                             {"python3", "-"},
                             {"python3", "-c", "print()"},
                             {"python3", "-m"},
                             {"python3", "-i", "a.py"},
                             {"python3", "-um", "a"},
                             {"python3", "--version"},
                             {"sh", "a.py"},
                             {"pythonic", "a.py"},
                             {"torchrun", "a.py"},
                             {"python3", "-W"},
                             {"./python3x", "a.py"}})
    EXPECT_EQ(python_target(other), 0u) << (other.empty() ? "" : other.back());
}

TEST(Warm, AStandbyHasTheOptionsAndTheTarget) {
  EXPECT_EQ(warm_argv({"python3", "-u", "train.py", "--lr", "1"}, {"auto"}, "/l/dtrain-warm.py", 3),
            (Words{"python3", "-u", "/l/dtrain-warm.py", "3", "auto", "train.py", "--lr", "1"}));
  EXPECT_EQ(warm_argv({"python3", "-m", "a.b"}, {"torch", "numpy"}, "/l/dtrain-warm.py", 3),
            (Words{"python3", "/l/dtrain-warm.py", "3", "list", "torch,numpy", "-m", "a.b"}));
}

std::string job_with(const std::string& framework, const std::string& warm) {
  return "apiVersion: dtrain/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  framework: " + framework +
         "\n  roles:\n    worker: {command: [python3, a.py]" + warm + "}\n";
}

Words warm_in(const std::string& framework, const std::string& warm) {
  const ParsedJob parsed = parse_manifest(job_with(framework, warm), {});
  EXPECT_TRUE(parsed.errors.empty()) << warm << ": " << (parsed.errors.empty() ? "" : parsed.errors.front().text());
  return warm_of(parsed.spec, "worker");
}

TEST(Warm, TheFrameworkDecidesUnlessTheRoleDoes) {
  EXPECT_EQ(warm_in("pytorch", ""), Words{"auto"});
  EXPECT_EQ(warm_in("tensorflow", ""), Words{"auto"});
  EXPECT_EQ(warm_in("jax", ""), Words{"auto"});
  EXPECT_EQ(warm_in("generic", ""), Words{});
  EXPECT_EQ(warm_in("pytorch", ", warm: none"), Words{});
  EXPECT_EQ(warm_in("generic", ", warm: auto"), Words{"auto"});
  EXPECT_EQ(warm_in("generic", ", warm: [torch, a.b_1]"), (Words{"torch", "a.b_1"}));
}

TEST(Warm, MistakesAreNamed) {
  for (const char* wrong : {", warm: yes", ", warm: {a: b}", ", warm: []", ", warm: [auto]", ", warm: [torch, none]", ", warm: ['a b']",
                            ", warm: [.a]", ", warm: [a..b]", ", warm: [a.]", ", warm: [1a]", ", warm: ['']"}) {
    const ParsedJob parsed = parse_manifest(job_with("pytorch", wrong), {});
    ASSERT_FALSE(parsed.errors.empty()) << wrong;
    EXPECT_TRUE(parsed.errors.front().path.starts_with("spec.roles.worker.warm")) << wrong << ": " << parsed.errors.front().text();
  }
}

TEST(Warm, AStandbyThatCannotBeIsSaid) {
  ParsedJob parsed = parse_manifest(job_with("generic", ", warm: auto"), {});
  EXPECT_TRUE(warnings_about(parsed.spec).empty());
  parsed.spec.roles.at("worker").command = {"sh", "a.sh"};
  ASSERT_EQ(warnings_about(parsed.spec).size(), 1u);
  EXPECT_TRUE(warnings_about(parsed.spec).front().starts_with("spec.roles.worker.warm: "));
}

}  // namespace
}  // namespace dtrain::job
