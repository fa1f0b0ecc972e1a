#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "agent/host/address.h"
#include "agent/host/facts.h"
#include "agent/host/listen_port.h"

namespace dtrain::host {
namespace {

using ::testing::HasSubstr;

TEST(Cpus, AreThoseThatThisProcessMayUse) {
  const auto usable = usable_cpus();
  ASSERT_TRUE(usable);
  cpu_set_t set;
  ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_EQ(usable->size(), static_cast<std::size_t>(CPU_COUNT(&set)));
  for (const std::uint32_t cpu : *usable) EXPECT_TRUE(CPU_ISSET(cpu, &set)) << cpu;
  EXPECT_EQ(total_capacity()->cpu_millis, usable->size() * 1000);
}

// hwloc knows all that the machine has; the agent may be kept to some of them.
TEST(Cpus, AreDescribedAsFarAsIsKnown) {
  const std::vector<task::HostCpu> known = {{0, 0, 0}, {1, 1, 0}, {2, 0, 0}, {3, 1, 0}};
  EXPECT_EQ(describe_cpus({1, 3, 7}, known), (std::vector<task::HostCpu>{{1, 1, 0}, {3, 1, 0}}));
  EXPECT_EQ(describe_cpus({1, 3}, {}), (std::vector<task::HostCpu>{{1, 1, -1}, {3, 3, -1}}));
}

TEST(Endpoint, Parses) {
  EXPECT_EQ(parse_endpoint("10.0.0.1:7400")->text(), "10.0.0.1:7400");
  EXPECT_EQ(parse_endpoint("[fd00::1]:7400")->ip, "fd00::1");
  EXPECT_EQ(parse_endpoint("[fd00::1]:7400")->text(), "[fd00::1]:7400");
  for (const char* bad : {"", "10.0.0.1", "10.0.0.1:", "10.0.0.1:70000", "10.0.0.1:7x", "host:1", "fd00::1:7400", ":7400", "[]:1"})
    EXPECT_FALSE(parse_endpoint(bad)) << bad;
}

TEST(Address, Classes) {
  EXPECT_TRUE(is_loopback("127.0.7.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
  EXPECT_TRUE(is_unspecified("0.0.0.0"));
  EXPECT_TRUE(is_unspecified("::"));
  EXPECT_FALSE(is_unspecified("x"));
}

TEST(Address, InterfacesAreFoundBothWays) {
  EXPECT_EQ(interface_of("127.0.0.1"), "lo");
  EXPECT_EQ(interface_of("127.0.7.1"), "lo");
  EXPECT_EQ(interface_of("192.0.2.77"), "");
  EXPECT_EQ(*resolve_ip_or_interface("lo"), "127.0.0.1");
  EXPECT_EQ(*resolve_ip_or_interface("192.0.2.1"), "192.0.2.1");
  const auto missing = resolve_ip_or_interface("nosuch0");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().next, HasSubstr("lo"));
}

TEST(Address, AdvertiseFollowsTheRules) {
  EXPECT_EQ(*choose_advertise({"0.0.0.0", 7400}, "10.9.8.7", {}), "10.9.8.7");
  EXPECT_EQ(*choose_advertise({"127.0.7.1", 7400}, "", {}), "127.0.7.1");
  EXPECT_EQ(*choose_advertise({"10.0.0.5", 7400}, "", {"127.0.0.1"}), "10.0.0.5");
  EXPECT_EQ(*source_address_towards("127.0.0.1:7400", Family::ipv4), "127.0.0.1");
  // A seed on loopback is this machine: never advertised unasked.
  const auto chosen = choose_advertise({"0.0.0.0", 7400}, "", {"127.0.0.1"});
  EXPECT_TRUE(!chosen || !is_loopback(*chosen));
}

TEST(Address, AdvertiseTakesAnInterfaceAndLoopbackOnlyWhenAsked) {
  EXPECT_EQ(*choose_advertise({"0.0.0.0", 7400}, "lo", {}), "127.0.0.1");
  EXPECT_EQ(*choose_advertise({"0.0.0.0", 7400}, "127.0.9.1", {}), "127.0.9.1");
  EXPECT_FALSE(choose_advertise({"0.0.0.0", 7400}, "nosuch0", {}));
  for (const char* nobody : {"0.0.0.0", "::"})
    EXPECT_THAT(choose_advertise({"10.0.0.5", 7400}, nobody, {}).error().message, HasSubstr("nobody can reach that address"));
}

TEST(Address, TheFamilyIsTheOneListenedOn) {
  EXPECT_FALSE(source_address_towards("127.0.0.1:7400", Family::ipv6));
  EXPECT_FALSE(source_address_towards("[::1]:7400", Family::ipv4));
  EXPECT_FALSE(source_address_towards("::1", Family::ipv4));
  EXPECT_FALSE(source_address_towards("[::1", Family::ipv6));
  const auto all = *interfaces();
  if (std::any_of(all.begin(), all.end(), [](const Interface& i) { return i.ip == "::1"; })) {
    for (const char* seed : {"::1", "[::1]", "[::1]:7400"}) EXPECT_EQ(*source_address_towards(seed, Family::ipv6), "::1") << seed;
    EXPECT_EQ(*choose_advertise({"::", 7400}, "lo", {}), "::1");
  }
  for (const char* listen : {"0.0.0.0", "::"}) {
    const auto chosen = choose_advertise({listen, 7400}, "", {"127.0.0.1", "[::1]:7400", "169.254.0.9", "10.0.0.1", "fd00::9"});
    EXPECT_TRUE(!chosen || (family_of(*chosen) == family_of(listen) && !is_link_local(*chosen))) << *chosen;
  }
  EXPECT_EQ(choose_advertise({"0.0.0.0", 7400}, "fd00::5", {}).error().text(),
            "could not advertise fd00::5: this agent listens on IPv4 only; give an IPv4 address, or --listen [::]:7400");
  EXPECT_EQ(choose_advertise({"fd00::1", 7500}, "10.0.0.5", {}).error().text(),
            "could not advertise 10.0.0.5: this agent listens on IPv6 only; give an IPv6 address, or --listen 0.0.0.0:7500");
  EXPECT_EQ(*choose_advertise({"::", 7400}, "fd00::5", {}), "fd00::5");
  EXPECT_THAT(choose_advertise({"::", 7400}, "fe80::5", {}).error().message, HasSubstr("nobody can reach that address"));
}

TEST(Address, WhereAPeerIsKnownFromBeforeNoNameIsLookedUp) {
  using Targets = std::vector<std::string>;
  EXPECT_EQ(route_targets({"gpu01", "10.0.0.1:7400"}, {}), (Targets{"gpu01", "10.0.0.1:7400"}));
  EXPECT_EQ(route_targets({"gpu01", "10.0.0.1:7400", "[fd00::1]:7400"}, {"10.0.0.2", "fd00::2"}),
            (Targets{"10.0.0.1:7400", "[fd00::1]:7400", "10.0.0.2", "fd00::2"}));
  EXPECT_EQ(route_targets({"gpu01"}, {"", "gpu02"}), Targets{"gpu01"});  // a record is bytes from a disk
  EXPECT_EQ(route_targets({"gpu01"}, Targets(4096, "10.0.0.2")).size(), kRouteTargets);
}

TEST(Address, LinkLocal) {
  for (const char* yes : {"169.254.0.1", "169.254.255.1", "fe80::1", "febf::1"}) EXPECT_TRUE(is_link_local(yes)) << yes;
  for (const char* no : {"169.253.0.1", "10.169.254.1", "fec0::1", "fd00::1", "", "x"}) EXPECT_FALSE(is_link_local(no)) << no;
}

TEST(Address, WithoutARouteTheOnlyAddressIsTaken) {
  const auto only_address = [](const std::vector<Interface>& all) { return host::only_address(all, Family::ipv4); };
  EXPECT_EQ(*only_address({{"eth0", "169.254.3.4"}, {"eth0", "10.0.0.5"}, {"eth0", "fd00::5"}}), "10.0.0.5");
  EXPECT_EQ(*host::only_address({{"eth0", "10.0.0.5"}, {"eth0", "fe80::5"}, {"eth0", "fd00::5"}}, Family::ipv6), "fd00::5");

  EXPECT_EQ(*only_address({{"lo", "127.0.0.1"}, {"eth0", "10.0.0.5"}, {"lo", "::1"}}), "10.0.0.5");
  EXPECT_EQ(*only_address({{"eth0", "10.0.0.5"}, {"eth0:1", "10.0.0.5"}}), "10.0.0.5");
  const auto several = only_address({{"lo", "127.0.0.1"}, {"eth0", "10.0.0.5"}, {"ib0", "10.1.0.5"}});
  ASSERT_FALSE(several);
  EXPECT_THAT(several.error().text(),
              HasSubstr("several IPv4 addresses; give one with --advertise IP or INTERFACE: 10.0.0.5 (eth0), 10.1.0.5 (ib0)"));
  EXPECT_THAT(only_address({{"lo", "127.0.0.1"}}).error().message, HasSubstr("no IPv4 address but its own loopback"));
}

TEST(Address, AdvertisingWhatIsOnNoInterfaceIsDoubted) {
  EXPECT_EQ(check_advertise("10.0.0.5", {{"eth0", "10.0.0.5"}}), "");
  EXPECT_EQ(check_advertise("127.0.9.1", {{"lo", "127.0.0.1"}}), "");
  EXPECT_THAT(check_advertise("10.0.0.6", {{"eth0", "10.0.0.5"}}), HasSubstr("no interface here has the advertised address 10.0.0.6"));
}

TEST(ListenPort, IsHeldAndItsOwnerIsNamed) {
  auto first = ListenPort::reserve({"127.0.0.1", 0});
  ASSERT_TRUE(first);
  const std::uint16_t port = first->endpoint().port;
  EXPECT_NE(port, 0);
  const auto second = ListenPort::reserve({"127.0.0.1", port});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::unavailable);
  // Nothing listens on it yet, so the kernel's table does not show it; one that listens is shown with its owner.
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof any;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&any), size), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&any), &size), 0);
  const auto taken = ListenPort::reserve({"127.0.0.1", ntohs(any.sin_port)});
  ::close(fd);
  ASSERT_FALSE(taken);
  EXPECT_THAT(taken.error().message, HasSubstr("(pid " + std::to_string(::getpid()) + ")"));
}

TEST(ListenPort, IsFreeAgainAtTheEnd) {
  std::uint16_t port = 0;
  {
    auto first = ListenPort::reserve({"127.0.0.1", 0});
    port = first->endpoint().port;
  }
  EXPECT_TRUE(ListenPort::reserve({"127.0.0.1", port}));
}

TEST(ListenPort, AnAddressOfSomebodyElseIsAnError) {
  const auto port = ListenPort::reserve({"192.0.2.1", 7400});
  ASSERT_FALSE(port);
  EXPECT_THAT(port.error().text(), HasSubstr("no such address"));
}

TEST(Facts, NodeNames) {
  EXPECT_EQ(to_node_name("GPU01.cluster.example"), "gpu01");
  EXPECT_EQ(to_node_name("_my_host_"), "my-host");
  EXPECT_EQ(to_node_name("..."), "node");
  EXPECT_EQ(to_node_name(std::string(100, 'a')).size(), 63u);
  EXPECT_TRUE(is_node_name(default_node_name()));
  for (const char* bad : {"", "-a", "a-", "A", "a_b", "a.b"}) EXPECT_FALSE(is_node_name(bad)) << bad;
}

TEST(Facts, CapacityAndReserve) {
  const auto total = total_capacity();
  ASSERT_TRUE(total);
  EXPECT_GE(total->cpu_millis, 1000u);
  EXPECT_GT(total->memory_bytes, 64u << 20);
  const Capacity small{2000, 4ull << 30};
  EXPECT_EQ(after_reserve(small, {}).cpu_millis, 1000u);
  EXPECT_EQ(after_reserve(small, {}).memory_bytes, 3ull << 30);
  const Capacity one{1000, 100};
  EXPECT_EQ(after_reserve(one, {}).cpu_millis, 500u);
  EXPECT_EQ(after_reserve(small, {5000, 5ull << 30}).cpu_millis, 0u);
  EXPECT_EQ(after_reserve(small, {5000, 5ull << 30}).memory_bytes, 0u);
  EXPECT_EQ(after_reserve(small, {0, 0}).memory_bytes, small.memory_bytes);
}

TEST(Facts, IdsAreFreshAndGpusAreMarked) {
  EXPECT_EQ(random_id()->size(), 32u);
  EXPECT_NE(*random_id(), *random_id());
  EXPECT_EQ(boot_id()->size(), 36u);
  const auto gpus = pretended_gpus(2);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_TRUE(gpus[1].pretended);
  EXPECT_NE(gpus[0].pci, gpus[1].pci);
}

}  // namespace
}  // namespace dtrain::host
