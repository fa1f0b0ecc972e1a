#include "common/cluster/placement.h"

#include <algorithm>
#include <map>
#include <set>

#include "common/cluster/cluster_change.h"
#include "tests/unit/cluster/hosts.h"

namespace dtrain::cluster {
namespace {

using Gpus = std::vector<std::uint32_t>;

std::map<NodeId, std::uint32_t> by_host(const std::vector<TaskPlacement>& placements) {
  std::map<NodeId, std::uint32_t> count;
  for (const auto& p : placements) ++count[p.node];
  return count;
}
using Hosts = std::map<NodeId, std::uint32_t>;

TEST(Placement, AllOrNothing) {
  const job::JobSpec s = workers_job(3, 1);
  EXPECT_TRUE(place(s, workers(3), {host("h1", 3)}));
  EXPECT_FALSE(place(s, workers(3), {host("h1", 2)}));
}

TEST(Placement, GpusAreDisjointAndTheModelMatches) {
  job::JobSpec s = workers_job(2, 0, 2);
  s.roles["worker"].resources.gpu_model = "A100";
  const auto placed = place(s, workers(2), {host("h1", 4, 4)});
  ASSERT_TRUE(placed);
  EXPECT_EQ((*placed)[0].gpus, (Gpus{0, 1}));
  EXPECT_EQ((*placed)[1].gpus, (Gpus{2, 3}));
  s.roles["worker"].resources.gpu_model = "H100";
  EXPECT_FALSE(place(s, workers(2), {host("h1", 4, 4)}));
}

TEST(Placement, GpusOfOneNumaNodeForOneTask) {
  HostCapacity h = host("h1", 8, 8, 2);
  h.gpus[0].free = false;  // three are left on the first node, four on the second
  const auto four = place(workers_job(1, 0, 4), workers(1), {h});
  ASSERT_TRUE(four);
  EXPECT_EQ((*four)[0].gpus, (Gpus{4, 5, 6, 7}));
  const auto three = place(workers_job(1, 0, 3), workers(1), {h});
  EXPECT_EQ((*three)[0].gpus, (Gpus{1, 2, 3})) << "the fullest node that holds them: the other stays whole";
  const auto two_by_two = place(workers_job(2, 0, 2), workers(2), {h});
  EXPECT_EQ((*two_by_two)[0].gpus, (Gpus{4, 5})) << "both tasks together on one node";
  EXPECT_EQ((*two_by_two)[1].gpus, (Gpus{6, 7}));
  const auto six = place(workers_job(1, 0, 6), workers(1), {h});
  EXPECT_EQ((*six)[0].gpus, (Gpus{1, 2, 4, 5, 6, 7})) << "two nodes where one does not suffice";
}

// What XGBoost's operator tells of workers is one port for all of them.
TEST(Placement, WorkersOfOneTrackerGetOnePortWhereTheyShareNoHost) {
  job::JobSpec s = generic_job(2);
  s.framework = job::Framework::xgboost;
  s.roles["master"] = s.roles["worker"];
  s.roles["master"].replicas = 1;
  s.roles["worker"].anti_affinity = "host";
  const std::vector<TaskId> tasks{{"master", 0}, {"worker", 0}, {"worker", 1}};
  const auto apart = place(s, tasks, {host("h1", 8), host("h2", 8)});
  ASSERT_TRUE(apart);
  EXPECT_EQ((*apart)[1].address.port, (*apart)[2].address.port);
  std::set<std::pair<NodeId, std::uint16_t>> places;
  for (const TaskPlacement& p : *apart) EXPECT_TRUE(places.emplace(p.node, p.address.port).second) << "and none twice on a host";
  s.roles["worker"].anti_affinity = "none";
  const auto together = place(s, tasks, {host("h1", 8)});
  ASSERT_TRUE(together);
  EXPECT_NE((*together)[1].address.port, (*together)[2].address.port);
}

TEST(Placement, SelectorsAntiAffinityAndHostsWithoutGpusForPs) {
  job::JobSpec s = generic_job(2);
  s.roles["worker"].anti_affinity = "host";
  EXPECT_FALSE(place(s, workers(2), {host("h1", 8)}));
  const auto two = place(s, workers(2), {host("h1", 8), host("h2", 8)});
  ASSERT_TRUE(two);
  EXPECT_NE((*two)[0].node, (*two)[1].node);
  s.roles["worker"].node_selector["zone"] = "a";
  EXPECT_FALSE(place(s, workers(1), {host("h1", 8)}));
  s.roles["worker"].node_selector = {{"kubernetes.io/hostname", "h2"}};
  const auto named = place(s, workers(1), {host("h1", 8), host("h2", 8)});
  ASSERT_TRUE(named);
  EXPECT_EQ((*named)[0].node, "h2");
  HostCapacity renamed = host("h2", 8);
  renamed.labels["kubernetes.io/hostname"] = "other";
  EXPECT_FALSE(place(s, workers(1), {host("h1", 8), renamed})) << "a label that the host was given counts";

  job::JobSpec ps = ps_job();
  ps.roles["ps"].avoid_gpu_hosts = job::AvoidGpuHosts::prefer;
  const auto placed = place(ps, {{"ps", 0}}, {host("gpu", 8, 4), host("plain", 8)});
  ASSERT_TRUE(placed);
  EXPECT_EQ((*placed)[0].node, "plain");
  EXPECT_TRUE(place(ps, {{"ps", 0}}, {host("gpu", 8, 4)})) << "prefer is not require";
  ps.roles["ps"].avoid_gpu_hosts = job::AvoidGpuHosts::require;
  EXPECT_FALSE(place(ps, {{"ps", 0}}, {host("gpu", 8, 4)}));
}

TEST(Placement, AntiAffinityByLabelAndWithTasksThatStandAlready) {
  job::JobSpec s = generic_job(2);
  s.roles["worker"].anti_affinity = "rack";
  const std::vector<HostCapacity> hosts{in_rack(host("h1", 8), "a"), in_rack(host("h2", 8), "a"), in_rack(host("h3", 8), "b")};
  const auto two = place(s, workers(2), hosts);
  ASSERT_TRUE(two);
  EXPECT_EQ(by_host(*two), (Hosts{{"h1", 1}, {"h3", 1}}));
  s.roles["worker"].replicas = 3;
  EXPECT_FALSE(place(s, workers(3), hosts));
  EXPECT_TRUE(place(s, workers(1), {host("h1", 8)})) << "no label is a value as well";
  EXPECT_FALSE(place(s, workers(2), {host("h1", 8), host("h2", 8)}));

  const Capacity free(hosts);
  const auto third = place(s, {{"worker", 1}}, free, {{{"worker", 0}, "h2", {}, {}}});
  ASSERT_TRUE(third);
  EXPECT_EQ((*third)[0].node, "h3") << "worker-0 is in rack a";
}

TEST(Placement, CordonedHostsTakeNothingNew) {
  HostCapacity drained = host("h1", 8);
  drained.schedulable = false;
  const auto placed = place(workers_job(2, 1), workers(2), {drained, host("h2", 8)});
  ASSERT_TRUE(placed);
  EXPECT_EQ(by_host(*placed), (Hosts{{"h2", 2}}));
  EXPECT_FALSE(place(workers_job(2, 1), workers(2), {drained}));
}

TEST(Placement, PackFillsUsedHostsAndSpreadTheEmptyOnes) {
  HostCapacity used = host("h2", 8);
  used.cpu_used = 2000;
  used.tasks = 2;
  const std::vector<HostCapacity> hosts{host("h1", 8), used, host("h3", 8)};
  job::JobSpec s = workers_job(3, 2);
  EXPECT_EQ(by_host(*place(s, workers(3), hosts)), (Hosts{{"h2", 3}}));
  s.policy.placement = job::Placement::spread;
  EXPECT_EQ(by_host(*place(s, workers(3), hosts)), (Hosts{{"h1", 1}, {"h2", 1}, {"h3", 1}}));
  EXPECT_EQ(by_host(*place(s, workers(2), hosts)), (Hosts{{"h1", 1}, {"h3", 1}}));
}

TEST(Placement, RanksGoToOneNumaNodeThenOneHostThenOneRack) {
  std::vector<HostCapacity> hosts{in_rack(host("h1", 8, 4, 2), "a"), in_rack(host("h2", 8, 8, 2), "a"), in_rack(host("h3", 8, 8, 2), "b"),
                                  in_rack(host("h4", 8, 8, 2), "b"), in_rack(host("h5", 8, 8, 2), "b")};
  const auto four = place(ranks_job(4, 1, 1), workers(4), hosts);
  ASSERT_TRUE(four);
  EXPECT_EQ(by_host(*four), (Hosts{{"h2", 4}})) << "one NUMA node of h1 holds only two";
  std::set<std::uint32_t> gpus;
  for (const auto& p : *four) gpus.insert(p.gpus.begin(), p.gpus.end());
  EXPECT_EQ(gpus, (std::set<std::uint32_t>{0, 1, 2, 3}));

  EXPECT_EQ(by_host(*place(ranks_job(8, 1, 1), workers(8), hosts)), (Hosts{{"h2", 8}}));
  EXPECT_EQ(by_host(*place(ranks_job(12, 1, 1), workers(12), hosts)), (Hosts{{"h1", 4}, {"h2", 8}})) << "rack a, whole";
  EXPECT_EQ(by_host(*place(ranks_job(14, 1, 1), workers(14), hosts)), (Hosts{{"h3", 8}, {"h4", 6}})) << "rack b";
  EXPECT_EQ(by_host(*place(ranks_job(28, 1, 1), workers(28), hosts)), (Hosts{{"h1", 4}, {"h3", 8}, {"h4", 8}, {"h5", 8}}))
      << "the larger rack, and the host of the other that holds the rest";
}

TEST(Placement, AChiefAndItsWorkersAreRanksTogetherAnEvaluatorIsNot) {
  job::JobSpec s = ranks_job(3, 1, 1);
  s.roles["chief"] = s.roles["worker"];
  s.roles["chief"].replicas = 1;
  s.roles["evaluator"] = role(1);
  s.roles["evaluator"].resources.cpu_millis = 5000;
  const auto placed = place(s, wanted_tasks(s), {host("h1", 8, 3), host("h2", 8, 4)});
  ASSERT_TRUE(placed);
  for (const auto& p : *placed) EXPECT_EQ(p.node, p.task.role == "evaluator" ? "h1" : "h2") << p.task.text();
}

TEST(Placement, RolesThatCanGoElsewhereGiveWay) {
  job::JobSpec s = workers_job(2, 2, 1);
  s.roles["aide"] = role(2);  // comes first by name, and could take what only the workers can use
  s.roles["aide"].resources.cpu_millis = 2000;
  const auto placed = place(s, wanted_tasks(s), {host("gpu", 4, 2), host("plain", 4)});
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(by_host(*placed), (Hosts{{"gpu", 2}, {"plain", 2}}));
}

TEST(Placement, ASearchFindsWhatGreedMisses) {
  // 7 = 4 + 3 and 6 = 3 + 3: whoever puts both large ones together, or the small ones first, is stuck.
  job::JobSpec s = generic_job(1);
  s.roles["worker"].resources.cpu_millis = 4000;
  s.roles["aide"] = role(3);
  s.roles["aide"].resources.cpu_millis = 3000;
  EXPECT_TRUE(place(s, wanted_tasks(s), {host("h1", 6), host("h2", 7)}));
  EXPECT_TRUE(place(s, wanted_tasks(s), {host("h1", 7), host("h2", 6)}));
  EXPECT_FALSE(place(s, wanted_tasks(s), {host("h1", 8), host("h2", 5)}));
}

TEST(Placement, PortsOnlyWhereAddressesAreUsed) {
  job::JobSpec s = generic_job(1);
  EXPECT_EQ((*place(s, workers(1), {host("h1", 1)}))[0].address.port, 0);
  s.roles["worker"].command = {"x", "--hosts={hosts:worker}"};
  EXPECT_EQ((*place(s, workers(1), {host("h1", 1)}, {30000, 30001}))[0].address.port, 30000);
  const auto no = place(s, workers(3), {host("h1", 1)}, {30000, 30001});
  ASSERT_FALSE(no);
  EXPECT_NE(no.error().message.find("a port"), std::string::npos) << no.error().message;
}

TEST(Placement, APortIsGivenOutOnceForEachAddress) {
  job::JobSpec s = generic_job(3);
  s.roles["worker"].command = {"x", "--hosts={hosts:worker}"};
  s.policy.placement = job::Placement::spread;
  HostCapacity a = host("h1", 4), b = host("h2", 4), c = host("h3", 4);
  b.task_address = a.task_address;  // two agents on one machine
  a.ports_in_use = {30000, 30002};
  const auto placed = place(s, workers(3), {a, b, c}, {30000, 30009});
  ASSERT_TRUE(placed);
  std::set<std::pair<std::string, std::uint16_t>> addresses;
  for (const auto& p : *placed) addresses.insert({p.address.host, p.address.port});
  EXPECT_EQ(addresses,
            (std::set<std::pair<std::string, std::uint16_t>>{{a.task_address, 30001}, {a.task_address, 30003}, {c.task_address, 30000}}));
  EXPECT_FALSE(place(s, workers(3), {a, b}, {30000, 30003})) << "they share two free ones";
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

TEST(PlacementReasons, NameTheBestHostAndWhatIsShort) {
  EXPECT_EQ(why(workers_job(1, 0, 4), {host("h1", 8, 1), host("h3", 8, 2), host("h2", 8)}),
            "worker-0 needs 4 GPUs on one host, best is 2 on h3");
  EXPECT_EQ(why(workers_job(2, 9), {host("h1", 8), host("h2", 4)}), "worker-0 needs 9000m CPU on one host, best is 8000m on h1");
  job::JobSpec s = workers_job(1, 1);
  s.roles["worker"].resources.memory_bytes = 9ull << 30;
  EXPECT_EQ(why(s, {host("h1", 8)}), "worker-0 needs 9216 MiB memory on one host, best is 8192 MiB on h1");
  s = workers_job(3, 0, 1);
  s.roles["worker"].resources.gpu_model = "H100";
  EXPECT_EQ(why(s, {host("h1", 8, 4)}), "worker-0 needs 1 H100 GPU on one host, best is 0 on h1");
  EXPECT_EQ(why(workers_job(12, 2), {host("h1", 8), host("h2", 9)}),
            "12 tasks of worker need 2000m CPU each, there is room for 8 (on 2 hosts, most on h1: 4)");
  EXPECT_EQ(why(s, {}), "worker-0 needs a host, none is known");
}

TEST(PlacementReasons, NameTheRuleThatLeavesHostsOut) {
  HostCapacity drained = host("h1", 8, 8);
  drained.schedulable = false;
  job::JobSpec s = workers_job(1, 0, 4);
  EXPECT_EQ(why(s, {drained}), "worker-0 needs a host that takes tasks, none of 1 host does (cordoned)");
  EXPECT_EQ(why(s, {drained, host("h2", 8, 2)}), "worker-0 needs 4 GPUs on one host, best is 2 on h2; 1 of 2 hosts is cordoned");
  s.roles["worker"].node_selector["zone"] = "a";
  EXPECT_EQ(why(s, {host("h2", 8, 4), host("h3", 8, 4)}), "worker-0 needs a host with label zone=a, none of 2 hosts has it");
  EXPECT_EQ(why(s, {drained, host("h3", 8, 4)}), "worker-0 finds no host; 1 of 2 hosts is cordoned, 1 has not label zone=a");
  s.roles["worker"].node_selector.clear();
  const auto unfit = [](const std::string& name) {
    HostCapacity sick = host(name, 8, 8);
    sick.schedulable = false;
    sick.unfit = "health check ended with 1: disk";
    return sick;
  };
  EXPECT_EQ(why(s, {unfit("h1")}), "worker-0 needs a host that takes tasks, none of 1 host does (h1: health check ended with 1: disk)");
  EXPECT_EQ(
      why(s, {drained, unfit("h2"), host("h3", 8, 2)}),
      "worker-0 needs 4 GPUs on one host, best is 2 on h3; 1 of 3 hosts is cordoned, 1 is not fit (h2: health check ended with 1: disk)");
  EXPECT_EQ(why(s, {unfit("h1"), unfit("h2"), unfit("h3"), unfit("h4")}),
            "worker-0 needs a host that takes tasks, none of 4 hosts does (h1: health check ended with 1: disk; h2: health check ended "
            "with 1: disk; ...)");
  s = generic_job(3);
  s.roles["worker"].anti_affinity = "host";
  EXPECT_EQ(why(s, {host("h1", 8), host("h2", 8)}),
            "3 tasks of worker need a host of its own for each task (antiAffinity: host), there is room for 2");
  s = generic_job(1);
  s.roles["worker"].avoid_gpu_hosts = job::AvoidGpuHosts::require;
  EXPECT_EQ(why(s, {host("h1", 8, 1)}), "worker-0 avoids hosts with GPUs, none of 1 host is without");
  s.roles["worker"].avoid_gpu_hosts = job::AvoidGpuHosts::no;
  s.roles["worker"].image = "a/b";
  EXPECT_EQ(why(s, {host("h1", 8)}), "worker-0 needs a host that can run image a/b, none of 1 host can (none has podman or enroot)");
  HostCapacity full = host("h2", 0);
  full.runs_images = true;
  s.roles["worker"].resources.cpu_millis = 1000;
  EXPECT_EQ(why(s, {host("h1", 8), full}),
            "worker-0 needs 1000m CPU on one host, best is 0m on h2; 1 of 2 hosts can run no images (without podman or enroot)");
}

// The log has room for copies on so many hosts: what has none is given nothing, and whoever waits for it is told.
TEST(PlacementReasons, NameTheLimitOfCopies) {
  HostCapacity without = host("h2", 8, 4);
  without.no_copy = true;
  const job::JobSpec s = workers_job(1, 0, 4);
  EXPECT_EQ(why(s, {host("h1", 8, 2), without}),
            "worker-0 needs 4 GPUs on one host, best is 2 on h1; 1 of 2 hosts gets none: as many hosts as can have a copy of the log "
            "(250) have tasks");
  EXPECT_EQ(why(s, {without}),
            "worker-0 finds no host; 1 of 1 host gets none: as many hosts as can have a copy of the log (250) have tasks");
  Capacity all({host("h1", 8, 2), without});
  EXPECT_EQ(all.in_all().gpus, 2u);
  EXPECT_FALSE(place(s, wanted_tasks(s), all));
  all.give_copies_to_all();
  EXPECT_TRUE(place(s, wanted_tasks(s), all));
}

// Who gets a copy of the log changes its place among the hosts.
TEST(Capacity, ItsShapeIsThatOfItsHostsInAnyOrder) {
  const HostCapacity one = host("h1", 8, 2), two = host("h2", 8, 4), other = host("h2", 8, 3);
  EXPECT_EQ(Capacity({one, two}).shape(), Capacity({two, one}).shape());
  EXPECT_NE(Capacity({one, two}).shape(), Capacity({one, other}).shape());
  EXPECT_NE(Capacity({one, two}).shape(), Capacity({one}).shape());
  EXPECT_NE(Capacity({one, one}).shape(), Capacity(std::vector<HostCapacity>{}).shape());
}

class Used : public LedgerWorld {};

TEST_F(Used, WhatRunsIsTakenAndPortsRestTwoMinutes) {
  job::JobSpec s = ps_job();
  s.roles["worker"].resources.cpu_millis = 1000;
  const JobId id = submit(s);
  run(id);
  const auto free = [&] {
    std::vector<HostCapacity> hosts{host("n1", 4)};
    add_resting_ports(ledger_, hosts);
    Capacity capacity(std::move(hosts), {next_port_, next_port_});
    hold_used(ledger_, capacity);
    return capacity;
  };
  const PortRange all{20000, 20009};
  const auto ports_free = [&] {
    std::vector<HostCapacity> hosts{host("n1", 4)};
    add_resting_ports(ledger_, hosts);
    Capacity capacity(std::move(hosts), all);
    hold_used(ledger_, capacity);
    return capacity.free_ports(0);
  };
  EXPECT_EQ(free().room(0).cpu_millis, 2000);
  EXPECT_EQ(free().room(0).tasks, 5u);
  EXPECT_EQ(ports_free(), 5);
  act(id, ActionKind::cancel);
  everything_ended(id);
  EXPECT_EQ(free().room(0).cpu_millis, 4000);
  EXPECT_EQ(ports_free(), 5) << "nothing left over may be met at its old address";
  pass(kPortRest + 1s);
  submit(generic_job(1, "later"));  // time passes in the ledger with entries
  EXPECT_EQ(ports_free(), 10);
}

// Found by the simulator (world cluster, five hosts, seed 72).
TEST(Shape, DiffersWhereSeveralHostsChangeAlike) {
  std::vector<HostCapacity> hosts;
  for (int i = 0; i < 12; ++i) hosts.push_back(host("h" + std::to_string(i), 4));
  const std::uint64_t all = Capacity(hosts).shape();
  for (HostCapacity& one : hosts)
    for (HostCapacity& other : hosts) {
      one.schedulable = other.schedulable = false;
      EXPECT_NE(Capacity(hosts).shape(), all) << one.id << " and " << other.id;
      one.schedulable = other.schedulable = true;
    }
}

}  // namespace
}  // namespace dtrain::cluster
