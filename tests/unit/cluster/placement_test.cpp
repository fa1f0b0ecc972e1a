#include "common/cluster/placement.h"

#include "common/cluster/cluster_change.h"
#include "tests/unit/cluster/ledger_world.h"

namespace dtrain::cluster {
namespace {

HostCapacity host(const std::string& name, std::uint64_t cpus, std::uint32_t gpus = 0) {
  HostCapacity h;
  h.id = h.name = name;
  h.task_address = "10.0.0.1";
  h.cpu_millis = cpus * 1000;
  h.memory_bytes = 8ull << 30;
  for (std::uint32_t i = 0; i < gpus; ++i) h.gpus.push_back({i, "NVIDIA A100", true});
  return h;
}

std::vector<TaskId> workers(std::uint32_t n) {
  std::vector<TaskId> tasks;
  for (std::uint32_t i = 0; i < n; ++i) tasks.push_back({"worker", i});
  return tasks;
}

TEST(Placement, AllOrNothing) {
  job::JobSpec s = generic_job(3);
  s.roles["worker"].resources.cpu_millis = 1000;
  EXPECT_TRUE(place(s, workers(3), {host("h1", 3)}, {}));
  const auto no = place(s, workers(3), {host("h1", 2)}, {});
  ASSERT_FALSE(no);
  EXPECT_NE(no.error().message.find("needs 1000m CPU, 0m free on h1"), std::string::npos) << no.error().message;
}

TEST(Placement, GpusAreDisjointAndTheModelMatches) {
  job::JobSpec s = generic_job(2);
  s.roles["worker"].resources.gpus = 2;
  s.roles["worker"].resources.gpu_model = "A100";
  const auto placed = place(s, workers(2), {host("h1", 4, 4)}, {});
  ASSERT_TRUE(placed);
  EXPECT_EQ((*placed)[0].gpus, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ((*placed)[1].gpus, (std::vector<std::uint32_t>{2, 3}));
  s.roles["worker"].resources.gpu_model = "H100";
  const auto no = place(s, workers(2), {host("h1", 4, 4)}, {});
  ASSERT_FALSE(no);
  EXPECT_NE(no.error().message.find("needs 2 H100 GPUs on one host, 0 free on h1"), std::string::npos);
}

TEST(Placement, SelectorsAntiAffinityAndHostsWithoutGpusForPs) {
  job::JobSpec s = generic_job(2);
  s.roles["worker"].anti_affinity = "host";
  EXPECT_FALSE(place(s, workers(2), {host("h1", 8)}, {}));
  const auto two = place(s, workers(2), {host("h1", 8), host("h2", 8)}, {});
  ASSERT_TRUE(two);
  EXPECT_NE((*two)[0].node, (*two)[1].node);
  s.roles["worker"].node_selector["zone"] = "a";
  EXPECT_FALSE(place(s, workers(1), {host("h1", 8)}, {}));

  job::JobSpec ps = ps_job();
  ps.roles["ps"].avoid_gpu_hosts = job::AvoidGpuHosts::prefer;
  const auto placed = place(ps, {{"ps", 0}}, {host("gpu", 8, 4), host("plain", 8)}, {});
  ASSERT_TRUE(placed);
  EXPECT_EQ((*placed)[0].node, "plain");
  EXPECT_TRUE(place(ps, {{"ps", 0}}, {host("gpu", 8, 4)}, {})) << "prefer is not require";
}

TEST(Placement, PortsOnlyWhereAddressesAreUsed) {
  job::JobSpec s = generic_job(1);
  EXPECT_EQ((*place(s, workers(1), {host("h1", 1)}, {}))[0].address.port, 0);
  s.roles["worker"].command = {"x", "--hosts={hosts:worker}"};
  EXPECT_EQ((*place(s, workers(1), {host("h1", 1)}, {30000, 30001}))[0].address.port, 30000);
  const auto no = place(s, workers(3), {host("h1", 1)}, {30000, 30001});
  ASSERT_FALSE(no);
  EXPECT_NE(no.error().message.find("needs a port"), std::string::npos);
}

TEST(Placement, WhatScalesAlone) {
  job::JobSpec s = generic_job(2);
  EXPECT_TRUE(scales_alone(s, "worker"));
  s.env["ALL"] = "{hosts:worker}";
  EXPECT_FALSE(scales_alone(s, "worker"));
  job::JobSpec tf = ps_job();
  EXPECT_FALSE(scales_alone(tf, "worker"));
  tf.policy.enable_dynamic_worker = true;
  EXPECT_TRUE(scales_alone(tf, "worker"));
  EXPECT_FALSE(scales_alone(tf, "ps"));
}

class Used : public LedgerWorld {};

TEST_F(Used, WhatRunsIsTakenAndPortsRestTwoMinutes) {
  job::JobSpec s = ps_job();
  s.roles["worker"].resources.cpu_millis = 1000;
  const JobId id = submit(s);
  run(id);
  std::vector<HostCapacity> hosts{host("n1", 4)};
  subtract_used(ledger_, hosts);
  EXPECT_EQ(hosts[0].cpu_used, 2000u);
  EXPECT_EQ(hosts[0].tasks, 5u);
  EXPECT_EQ(hosts[0].ports_in_use.size(), 5u);
  act(id, ActionKind::cancel);
  everything_ended(id);
  const auto ports_now = [&] {
    std::vector<HostCapacity> h{host("n1", 4)};
    subtract_used(ledger_, h);
    return h[0].ports_in_use.size();
  };
  EXPECT_EQ(ports_now(), 5u) << "nothing left over may be met at its old address";
  pass(kPortRest + 1s);
  submit(generic_job(1, "later"));  // time passes in the ledger with entries
  EXPECT_EQ(ports_now(), 0u);
}

}  // namespace
}  // namespace dtrain::cluster
