// What is said of what was seen: one row per ill, each with a cure; a host without any is well in every check.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/node/doctor.h"
#include "common/node/host_health.h"

namespace dtrain::node {
namespace {

using ::testing::HasSubstr;
using Answer = Contact::Answer;

constexpr std::uint64_t kGi = 1ull << 30;

Examination healthy() {
  Examination seen;
  ExamTerms& terms = seen.terms;
  terms.name = "n1";
  terms.listen_ip = "0.0.0.0";
  terms.port = 7400;
  terms.keyed = true;
  terms.advertise = terms.task_address = "10.0.0.1";
  terms.task_ports = {20000, 29999};
  terms.join = {"n2"};
  terms.min_free_percent = 5;
  terms.gpus.resize(2);
  seen.host_name = "n1";
  seen.lookups = {{Lookup::Of::host, "n1", {"10.0.0.1"}, true}, {Lookup::Of::join, "n2", {"10.0.0.2"}, true}};
  seen.local_ports = {32768, 60999};
  seen.advertise_interface = seen.task_interface = "eth0";
  seen.clock_synchronised = true;
  seen.limits = {{"nofile", 1048576, 1048576}, {"memlock", kUnlimited, kUnlimited}, {"core", 0, kUnlimited}};
  seen.cgroup2 = {"cpu", "memory", "pids"};
  Disk disk;
  disk.what = "paths.data";
  disk.path = "/var/lib/dtrain";
  disk.total = 100 * kGi;
  disk.free = 60 * kGi;
  disk.inodes = 1000000;
  disk.inodes_free = 900000;
  seen.disks = {disk};
  seen.nvidia.devices = 2;
  seen.nvidia.module = seen.nvidia.library = "535.104.05";
  seen.nvidia.library_found = true;
  return seen;
}

std::string text(const Findings& findings) {
  std::string out;
  for (const wire::Finding& f : findings) out += f.level + " " + f.check + " " + f.node + ": " + f.finding + " / " + f.cure + "\n";
  return out;
}

Findings ills(Findings findings) {
  std::erase_if(findings, [](const wire::Finding& f) { return f.level == "ok"; });
  return findings;
}

TEST(Doctor, AWellHostIsWellInEveryCheck) {
  const Findings findings = examine_host(healthy());
  std::vector<std::string> checks;
  for (const wire::Finding& f : findings) {
    EXPECT_EQ(f.level, "ok") << text({f});
    EXPECT_EQ(f.node, "n1");
    EXPECT_EQ(f.cure, "");
    EXPECT_NE(f.finding, "") << f.check;
    checks.push_back(f.check);
  }
  EXPECT_THAT(checks,
              ::testing::ElementsAre("ports", "task-ports", "names", "addresses", "clock", "limits", "cgroups", "gpus", "disk", "health"));
}

struct Ill {
  std::function<void(Examination&)> happens;
  const char *level, *check, *finding, *cure;
};

TEST(Doctor, EachIllIsFoundWithItsCure) {
  const Ill ills_of_hosts[] = {
      {[](auto& s) {
         s.terms.agent = false;
         s.trials = {{"gossip", 7400, Error{ErrorCode::unavailable, "could not listen: the port is taken by nc (pid 7)", "stop it"}}};
       },
       "bad", "ports", "taken by nc (pid 7) (gossip)", "stop it"},
      {[](auto& s) {
         s.trials = {{"bulk", 7401, Error{ErrorCode::unavailable, "could not listen: the port is taken by dtraind (pid 7)", "stop"}, true}};
       },
       "warn", "ports", "an agent has port 7401", "--agent"},
      {[](auto& s) { s.terms.port = 32768; }, "warn", "ports", "32768-32769 lie in 32768-60999", "ip_local_reserved_ports=32768-32769"},
      {[](auto& s) { s.terms.keyed = false; }, "warn", "ports", "no cluster key", "keygen"},
      {[](auto& s) {
         s.terms.task_ports = {30000, 40000};
       },
       "warn", "task-ports", "overlap 32768-60999", "ip_local_reserved_ports=30000-40000"},
      {[](auto& s) {
         s.local_ports = {1024, 60999};
         s.reserved_ports = {{20000, 29998}};
         s.terms.port = 700;
       },
       "warn", "task-ports", "overlap 1024-60999", "taskPorts"},
      {[](auto& s) {
         s.strangers = {{20003, "nginx (pid 12)"}, {20009, ""}};
       },
       "warn", "task-ports", "20003 by nginx (pid 12), 20009;", "end those programs"},
      {[](auto& s) { s.lookups[0].addresses.clear(); }, "warn", "names", "own name n1 is not known", "/etc/hosts: 10.0.0.1 n1"},
      {[](auto& s) { s.lookups[0].addresses = {"127.0.1.1"}; }, "warn", "names", "own name n1 means 127.0.1.1", "write 10.0.0.1 n1"},
      {[](auto& s) { s.lookups[1].addresses.clear(); }, "warn", "names", "does not know: n2", "network.join"},
      {[](auto& s) { s.lookups[1].answered = false; }, "warn", "names", "did not answer in time for n2", "resolv.conf"},
      {[](auto& s) { s.advertise_interface = ""; }, "warn", "addresses", "no interface here has the advertised address 10.0.0.1",
       "network.advertise"},
      {[](auto& s) { s.task_interface = ""; }, "warn", "addresses", "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME stay unset",
       "network.taskAddress"},
      {[](auto& s) { s.clock_synchronised = false; }, "warn", "clock", "not synchronised", "timesyncd"},
      {[](auto& s) { s.limits[1].most = 8 << 20; }, "warn", "limits", "memlock unlimited, and get 8.0 MiB: RDMA", "LimitMEMLOCK=infinity"},
      {[](auto& s) { s.limits[0].most = 20000; }, "warn", "limits", "nofile 1048576, and get 20000", "LimitNOFILE=1048576"},
      {[](auto& s) { s.cgroup2.reset(); }, "bad", "cgroups", "neither be frozen", "unified_cgroup_hierarchy"},
      {[](auto& s) { s.cgroup2 = {"pids"}; }, "warn", "cgroups", "no controller for memory", "cgroup_enable=memory"},
      {[](auto& s) { s.root = false; }, "warn", "cgroups", "not run as root", "as root"},
      {[](auto& s) { s.nvidia.module = ""; }, "bad", "gpus", "2 NVIDIA GPUs, and no NVIDIA driver is loaded", "modprobe nvidia"},
      {[](auto& s) { s.nvidia.module = "", s.nvidia.other_driver = true; }, "bad", "gpus", "nouveau has them", "reboot"},
      {[](auto& s) { s.nvidia.library = "550.54.14"; }, "bad", "gpus", "kernel is 535.104.05, libcuda.so.1 is 550.54.14", "reboot"},
      {[](auto& s) { s.nvidia.library_found = false; }, "bad", "gpus", "libcuda.so.1 is not installed", "install"},
      {[](auto& s) { s.nvidia.missing = {"/dev/nvidia-uvm"}; }, "warn", "gpus", "/dev/nvidia-uvm", "nvidia-modprobe"},
      {[](auto& s) { s.amd.devices = 1, s.amd.module = "amdgpu", s.amd.missing = {"/dev/kfd"}; }, "warn", "gpus", "/dev/kfd is missing",
       "amdgpu"},
      {[](auto& s) { s.terms.gpus[1] = {1, "0000:10:00.0", "nvidia", "A100", "", 0, -1, false, false, "", -1, -1, -1, {}, {}}; }, "bad",
       "gpus", "GPU 1 at 0000:10:00.0 (A100)", "dmesg"},
      {[](auto& s) { s.terms.gpus[0].pretended = true; }, "warn", "gpus", "2 GPUs of this node are pretended", "remove"},
      {[](auto& s) { s.disks[0].free = 4 * kGi; }, "bad", "disk",
       "(/var/lib/dtrain) has 4.0 GiB free of 100.0 GiB, less than storage.minFree (5.0 GiB)", "lower storage.minFree"},
      {[](auto& s) { s.disks[0].free = 6 * kGi; }, "warn", "disk", "6.0 GiB free of 100.0 GiB; below 5.0 GiB", "du -xsh"},
      {[](auto& s) { s.terms.min_free_bytes = 61 * kGi; }, "bad", "disk", "less than storage.minFree (61.0 GiB)", "storage.minFree"},
      {[](auto& s) { s.terms.unfit = "health check ended with 1: /scratch is not mounted"; }, "bad", "health",
       "no new tasks are placed here: health check ended with 1: /scratch is not mounted", "as soon as that is over"},
      {[](auto& s) { s.terms.unfit = kNotChecked, s.terms.unchecked = true; }, "warn", "health",
       "no new tasks are placed here: its health check has not ended yet", "healthCheck.timeout"},
      {[](auto& s) { s.disks[0].inodes_free = 9; }, "bad", "disk", "9 of 1000000 inodes left", "more inodes"},
      {[](auto& s) { s.disks[0].read_only = true; }, "bad", "disk", "read-only", "remount,rw"},
      {[](auto& s) { s.disks[0].error = "Stale file handle"; }, "bad", "disk", "cannot be looked at: Stale file handle", "mounted"},
      {[](auto& s) { s.disks[0].in_memory = true; }, "warn", "disk", "lies in memory", "paths.data"},
      {[](auto& s) { s.disks[0].what = "paths.work", s.disks[0].no_exec = true; }, "warn", "disk", "noexec", "paths.work"},
  };
  for (const Ill& ill : ills_of_hosts) {
    Examination seen = healthy();
    ill.happens(seen);
    const Findings found = examine_host(seen);
    const Findings wrong = ills(found);
    ASSERT_EQ(wrong.size(), 1u) << ill.finding << "\n" << text(wrong);
    EXPECT_EQ(wrong[0].level, ill.level) << text(wrong);
    EXPECT_EQ(wrong[0].check, ill.check) << text(wrong);
    EXPECT_THAT(wrong[0].finding, HasSubstr(ill.finding));
    EXPECT_THAT(wrong[0].cure, HasSubstr(ill.cure));
    for (const wire::Finding& f : found) EXPECT_TRUE(f.level != "ok" || f.check != ill.check) << "it is not well: " << text({f});
  }
}

TEST(Doctor, WhatIsNoIll) {
  const std::function<void(Examination&)> harmless[] = {
      [](auto& s) { s.terms.listen_ip = "", s.terms.port = 0; },  // --dev
      [](auto& s) { s.terms.listen_ip = s.terms.advertise = s.terms.task_address = "127.0.0.1", s.lookups[0].addresses = {"127.0.1.1"}; },
      [](auto& s) {
        s.terms.task_ports = {30000, 40000}, s.reserved_ports = {{32768, 36000}, {36001, 40000}};
      },
      [](auto& s) {
        s.terms.port = 32768, s.reserved_ports = {{32768, 32769}};
      },
      [](auto& s) { s.local_ports = {}; },  // a kernel that does not say
      [](auto& s) { s.clock_synchronised.reset(); },
      [](auto& s) {
        s.cgroup2 = std::vector<std::string>{}, s.cgroup1 = {"memory", "pids"};
      },
      [](auto& s) { s.nvidia = {}, s.terms.gpus.clear(); },
      [](auto& s) { s.nvidia.library = ""; },                           // not to be read off
      [](auto& s) { s.disks[0].inodes = s.disks[0].inodes_free = 0; },  // btrfs counts none
      [](auto& s) { s.disks[0].what = "paths.run", s.disks[0].in_memory = s.disks[0].no_exec = true; },
      [](auto& s) {
        s.lookups.push_back({Lookup::Of::peer, "n3", {}, false});
      },
      [](auto& s) { s.terms.agent = false, s.terms.advertise = s.terms.task_address = "", s.advertise_interface = s.task_interface = ""; },
  };
  for (std::size_t i = 0; i < std::size(harmless); ++i) {
    Examination seen = healthy();
    harmless[i](seen);
    EXPECT_EQ(text(ills(examine_host(seen))), "") << i;
  }
}

TEST(Doctor, WithoutAnAgentNobodyKnowsWhatIsATask) {
  Examination seen = healthy();
  seen.terms.agent = false;
  seen.strangers = {{20'000, "python3 (pid 4711)"}};
  const auto found = ills(examine_host(seen));
  const auto ports = std::ranges::find(found, "task-ports", &wire::Finding::check);
  ASSERT_NE(ports, found.end());
  EXPECT_THAT(ports->finding, HasSubstr("these may be tasks that run on"));
  EXPECT_THAT(ports->cure, HasSubstr("leave them alone"));
}

TEST(Doctor, ManyStrangersAreCounted) {
  Examination seen = healthy();
  for (std::uint16_t i = 0; i < 20; ++i) seen.strangers.push_back({static_cast<std::uint16_t>(20000 + i), ""});
  EXPECT_THAT(ills(examine_host(seen)).at(0).finding, HasSubstr("20007, 12 further ones;"));
}

// ---------------------------------------------------------------- the others

PeerReport peer(int number, Duration ahead = 0s) {
  PeerReport p;
  p.name = "n" + std::to_string(number);
  p.address = {"10.0.0." + std::to_string(number), 7400};
  p.version = "1.0";
  p.reply.emplace();
  p.reply->sight.address = "10.0.0.1:7400";
  p.ahead = ahead;
  p.doubt = 10ms;
  return p;
}
Examination with_contacts(const std::vector<PeerReport>& peers) {
  Examination seen = healthy();
  for (const PeerReport& p : peers)
    for (const bool bulk : {false, true})
      seen.contacts.push_back({Answer::accepts, p.name, {p.address.ip, static_cast<std::uint16_t>(7400 + bulk)}, bulk, ""});
  return seen;
}

TEST(Doctor, OthersThatAreWellAreSaidToBe) {
  const std::vector<PeerReport> peers{peer(2), peer(3)};
  const Findings findings = examine_peers(with_contacts(peers), "1.0", peers);
  EXPECT_EQ(text(ills(findings)), "");
  EXPECT_THAT(text(findings), HasSubstr("ok reach n2: both ports of 10.0.0.2 answer, and it reaches n1"));
  EXPECT_THAT(text(findings), HasSubstr("ok clock n1: within 1.0 s of 2 others"));
}

struct PeerIll {
  std::function<void(Examination&, PeerReport&)> happens;  // to n2
  const char *level, *check, *node, *finding, *cure;
};

TEST(Doctor, EachIllOfAnotherIsFoundWithItsCure) {
  const PeerIll rows[] = {
      {[](auto& s, auto& p) { p.state = wire::MemberState::down, p.reply.reset(), s.contacts[0].answer = Answer::refused; }, "bad", "reach",
       "n2", "agent is down, and its host is up", "systemctl start"},
      {[](auto&, auto& p) { p.state = wire::MemberState::down, p.reply.reset(); }, "bad", "reach", "n2",
       "an agent listens at 10.0.0.2:7400, and it and n1 do not understand each other: they have different keys", "compare the key files"},
      {[](auto& s, auto& p) { p.state = wire::MemberState::dead, p.reply.reset(), s.contacts[0].answer = Answer::silent; }, "bad", "reach",
       "n2", "no sign of life at 10.0.0.2:7400", "forget-node n2"},
      {[](auto&, auto& p) { p.state = wire::MemberState::dead, p.reply.reset(); }, "bad", "reach", "n2",
       "though its port takes connections: its agent hangs, or has another key", "restart its agent"},
      {[](auto&, auto& p) { p.state = wire::MemberState::suspect; }, "warn", "reach", "n2", "silent", "network"},
      {[](auto&, auto& p) {
         p.reply.reset(), p.error = Error{ErrorCode::unavailable, "was silent for 30 s", ""};
       },
       "bad", "reach", "n2", "does not answer n1: was silent",
       "journalctl -u dtraind there); else let TCP ports 7400 and 7401 through to n1"},
      {[](auto&, auto& p) { p.reply.reset(); }, "warn", "reach", "n1", "1 members were not asked", "dtrainctl doctor"},
      {[](auto& s, auto&) { s.contacts[1].answer = Answer::silent; }, "bad", "reach", "n2",
       "n1 cannot connect to 10.0.0.2:7401 (bulk): there is no answer", "firewall"},
      {[](auto& s, auto&) { s.contacts[0].answer = Answer::refused; }, "bad", "reach", "n2",
       "10.0.0.2:7400 (gossip): the connection is refused", "7400 and 7401"},
      {[](auto& s, auto&) { s.contacts[0].answer = Answer::failed, s.contacts[0].cause = "No route to host"; }, "bad", "reach", "n2",
       "No route to host", "7400 and 7401"},
      {[](auto&, auto& p) { p.reply->sight.bulk = "there is no answer"; }, "bad", "reach", "n1",
       "n2 cannot connect to 10.0.0.1:7401 (bulk)", "through to n1"},
      {[](auto&, auto& p) { p.reply->sight.address = "10.0.9.1:7400"; }, "warn", "addresses", "n2", "n2 knows n1 at 10.0.9.1:7400",
       "restart"},
      {[](auto&, auto& p) { p.reply->sight.named = {"127.0.1.1"}; }, "warn", "names", "n2", "on n2 the name n1 means 127.0.1.1",
       "/etc/hosts"},
      {[](auto& s, auto&) {
         s.lookups.push_back({Lookup::Of::peer, "n2", {"10.0.0.99"}, true});
       },
       "warn", "names", "n1", "on n1 the name n2 means 10.0.0.99, and the host is 10.0.0.2", "/etc/hosts here"},
      {[](auto&, auto& p) { p.version = "0.9"; }, "warn", "version", "n1", "n2 (0.9)", "upgrade"},
      {[](auto&, auto& p) {
         p.reply->findings = {{"disk", "n2", "bad", "full", "empty it"}};
       },
       "bad", "disk", "n2", "full", "empty it"},
      {[](auto&, auto& p) { p.ahead = -3600s; }, "bad", "clock", "n2", "n2 is 3600.0 s behind those of most members (give or take 0.0 s)",
       "timesyncd"},
      {[](auto&, auto& p) { p.ahead = 2s; }, "warn", "clock", "n2", "n2 is 2.0 s ahead of", "on n2"},
  };
  for (const PeerIll& row : rows) {
    std::vector<PeerReport> peers{peer(2), peer(3), peer(4)};
    Examination seen = with_contacts(peers);
    row.happens(seen, peers[0]);
    const Findings wrong = ills(examine_peers(seen, "1.0", peers));
    ASSERT_EQ(wrong.size(), 1u) << row.finding << "\n" << text(wrong);
    EXPECT_EQ(wrong[0].level + " " + wrong[0].check + " " + wrong[0].node, std::string(row.level) + " " + row.check + " " + row.node);
    EXPECT_THAT(wrong[0].finding, HasSubstr(row.finding));
    EXPECT_THAT(wrong[0].cure, HasSubstr(row.cure));
  }
}

TEST(Doctor, TheClockThatIsWrongIsTheOneThatDiffersFromMost) {
  const auto clocks = [](const std::vector<PeerReport>& peers) {
    Findings all = ills(examine_peers(with_contacts(peers), "1.0", peers));
    return text(all);
  };
  // Mine: of all others I would say the same.
  EXPECT_THAT(clocks({peer(2, 3600s), peer(3, 3601s)}),
              HasSubstr("bad clock n1: the clock of n1 is 3600.0 s behind those of most members"));
  EXPECT_EQ(clocks({peer(2, 3600s), peer(3, 3600s)}).find("clock n2"), std::string::npos);
  // Of two nobody knows whose.
  const std::string two = clocks({peer(2, 90s)});
  EXPECT_THAT(two, HasSubstr("bad clock n2: the clock of n2 is 90.0 s ahead of that of n1"));
  EXPECT_THAT(two, HasSubstr("see which of the two is wrong"));
  // What may come of the way there is nobody's fault.
  PeerReport slow = peer(2, 5s);
  slow.doubt = 4500ms;
  EXPECT_EQ(clocks({slow, peer(3)}), "");
}

TEST(Doctor, WhatIsToldToTheOneThatAsks) {
  Examination seen = healthy();
  seen.contacts = {{Answer::accepts, "n9", {"10.0.0.9", 7400}, false, ""}, {Answer::silent, "n9", {"10.0.0.9", 7401}, true, ""}};
  seen.lookups.push_back({Lookup::Of::peer, "n9", {"10.0.0.9"}, true});
  const wire::PeerSight sight = sight_of(seen, {"n9", {"10.0.0.9", 7400}});
  EXPECT_EQ(sight.address, "10.0.0.9:7400");
  EXPECT_EQ(sight.gossip, "");
  EXPECT_EQ(sight.bulk, "there is no answer");
  EXPECT_EQ(sight.named, std::vector<std::string>{"10.0.0.9"});
}

}  // namespace
}  // namespace dtrain::node
