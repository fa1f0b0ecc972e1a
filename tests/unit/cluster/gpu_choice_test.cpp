// Which GPUs of a host tasks get, as tables: a machine, what is free, what is wanted, what is given.
#include "common/cluster/gpu_choice.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "tests/unit/cluster/hosts.h"

namespace dtrain::cluster {
namespace {

// One character for each GPU: where it is linked, and where it lies; '-' and '?': nowhere, not known.
HostCapacity machine(const std::string& groups, const std::string& nodes) {
  HostCapacity h = host("h", 64, static_cast<std::uint32_t>(groups.size()));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    h.gpus[i].group = groups[i] == '-' ? -1 : groups[i] - 'a';
    h.gpus[i].numa = nodes[i] == '?' ? -1 : nodes[i] - '0';
  }
  return h;
}

std::uint64_t bits(const std::string& picture) {  // "x.x." is GPUs 0 and 2
  std::uint64_t set = 0;
  for (std::size_t i = 0; i < picture.size(); ++i)
    if (picture[i] == 'x') set |= std::uint64_t{1} << i;
  return set;
}
std::string picture(std::uint64_t set, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += (set >> i & 1) != 0 ? 'x' : '.';
  return text;
}

struct Row {
  const char *groups, *nodes, *free;
  std::uint32_t want, in_all;
  const char *beside, *given;
};

TEST(GpuChoice, AsATable) {
  const Row rows[] = {
      // Eight without links on two nodes: NUMA alone.
      {"--------", "00001111", "xxxxxxxx", 1, 1, "........", "x......."},
      {"--------", "00001111", "xxxxxxxx", 4, 4, "........", "xxxx...."},
      {"--------", "00001111", ".xxxxxxx", 4, 4, "........", "....xxxx"},
      {"--------", "00001111", "..xxxxxx", 2, 2, "........", "..xx...."},
      {"--------", "00001111", "..xx..xx", 3, 3, "........", "..xx..x."},
      {"--------", "00001111", "xxxxxxxx", 2, 4, "x.......", "xx......"},
      {"--------", "????????", ".x.xxxxx", 2, 2, "........", ".x.x...."},
      // Eight that a switch joins: all are linked, so that the NUMA nodes decide.
      {"aaaaaaaa", "00001111", "xxxxxxxx", 4, 4, "........", "xxxx...."},
      {"aaaaaaaa", "00001111", ".xxxxxxx", 4, 4, "........", "....xxxx"},
      {"aaaaaaaa", "00001111", "xxxxxxxx", 2, 8, "........", "xx......"},
      {"aaaaaaaa", "00001111", "...xxxxx", 2, 5, "........", "....xx.."},
      // Pairs, and two rings that cross the nodes: the link comes before the node.
      {"aabbccdd", "00001111", "xxxxxxxx", 2, 2, "........", "xx......"},
      {"aabbccdd", "00001111", ".xxxxxxx", 2, 2, "........", "..xx...."},
      {"aabbccdd", "00001111", ".x.x.x.x", 2, 2, "........", ".x.x...."},
      {"abababab", "00001111", "xxxxxxxx", 4, 4, "........", "x.x.x.x."},
      {"abababab", "00001111", "xxxxxxxx", 2, 2, "........", "x.x....."},
      {"abababab", "00001111", ".x.xxx.x", 2, 2, "........", ".x.x...."},
      {"abababab", "00001111", ".xxxxxxx", 4, 4, "........", ".x.x.x.x"},
      {"abababab", "00001111", "xxxxxxxx", 2, 2, ".x......", ".x.x...."},  // beside the job's others
      // Some are linked and others are not: pairs go to the linked, single ones leave those whole.
      {"aa--", "0000", "xxxx", 2, 2, "....", "xx.."},
      {"aa--", "0000", "xxxx", 1, 1, "....", "..x."},
      {"aa--", "0000", "xx..", 1, 1, "....", "x..."},
      {"aa--", "0011", "xxxx", 1, 2, "....", "x..."},
      {"aa--", "0011", "xxxx", 3, 3, "....", "xxx."},
      {"-", "0", "x", 1, 1, ".", "x"},
      {"-", "0", "x", 0, 0, ".", "."},
  };
  for (const Row& row : rows) {
    const std::uint64_t given = choose_gpus(machine(row.groups, row.nodes), bits(row.free), row.want, row.in_all, bits(row.beside));
    EXPECT_EQ(picture(given, std::string(row.free).size()), row.given)
        << row.groups << " " << row.nodes << " free " << row.free << " want " << row.want << " of " << row.in_all;
  }
}

TEST(GpuChoice, MostTogetherIsOfAGroupOrANode) {
  EXPECT_EQ(most_together(machine("--------", "00001111"), bits("xxx.xxxx")), 4u);
  EXPECT_EQ(most_together(machine("aaaaaaaa", "00001111"), bits("xxx.xxxx")), 7u);
  EXPECT_EQ(most_together(machine("aab-----", "00111111"), bits("xxxx....")), 2u);
  EXPECT_EQ(most_together(machine("--", "01"), 0), 0u);
}

// Whatever the machine: as many as are wanted, of those that are free; and together where a group or a node holds them.
RC_GTEST_PROP(GpuChoices, AreFreeAndTogetherWhereTheyCanBe, ()) {
  const auto size = *rc::gen::inRange<std::size_t>(1, 17);
  std::string groups, nodes;
  for (std::size_t i = 0; i < size; ++i) groups += *rc::gen::element('-', 'a', 'b', 'c'), nodes += *rc::gen::element('?', '0', '1');
  const HostCapacity h = machine(groups, nodes);
  const std::uint64_t all = (std::uint64_t{1} << size) - 1;
  const std::uint64_t free = *rc::gen::inRange<std::uint64_t>(1, all + 1), beside = all & ~free;
  const auto most = static_cast<std::uint32_t>(std::popcount(free));
  const auto want = *rc::gen::inRange<std::uint32_t>(1, most + 1), in_all = *rc::gen::inRange<std::uint32_t>(want, most + 1);
  const std::uint64_t given = choose_gpus(h, free, want, in_all, beside);
  RC_ASSERT(static_cast<std::uint32_t>(std::popcount(given)) == want);
  RC_ASSERT((given & ~free) == 0u);
  const auto in_one = [&](auto of, std::uint64_t set) {
    std::set<std::int32_t> in;
    for (std::size_t i = 0; i < size; ++i)
      if ((set >> i & 1) != 0) in.insert(of(h.gpus[i]));
    return in.size() == 1;
  };
  std::map<std::int32_t, std::uint32_t> held;
  for (std::size_t i = 0; i < size; ++i)
    if ((free >> i & 1) != 0) ++held[h.gpus[i].group];
  const bool one_holds = std::any_of(held.begin(), held.end(), [&](const auto& group) { return group.second >= want; });
  RC_ASSERT(!one_holds || in_one([](const auto& gpu) { return gpu.group; }, given));
}

}  // namespace
}  // namespace dtrain::cluster
