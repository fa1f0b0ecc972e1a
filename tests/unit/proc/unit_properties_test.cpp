// What systemd is told of an assignment, and what is made of what came of it.
#include "agent/proc/unit_properties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "agent/proc/took_effect.h"

namespace dtrain::proc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

task::ShimSpec worker() {
  task::ShimSpec spec;
  spec.id = {17, 2, {"worker", 1}};
  spec.job_name = "digits";
  spec.stop_grace = 30s;
  return spec;
}

UnitHost host() {
  UnitHost h;
  h.shim_path = "/usr/libexec/dtrain/dtrain-shim";
  h.directory = "/var/lib/dtrain/tasks/17.2.worker-1";
  h.unit = "dtrain-17.2.worker-1-1a2b3c4d.service";
  h.limits = {{"NOFILE", 1024, 4096}};
  h.capabilities = 0x1ff;
  return h;
}

template <class T>
std::optional<T> get(const std::vector<UnitProperty>& properties, const std::string& name) {
  for (const UnitProperty& property : properties)
    if (property.name == name) return std::get<T>(property.value);
  return std::nullopt;
}

bool has(const std::vector<UnitProperty>& properties, const std::string& name) {
  return std::any_of(properties.begin(), properties.end(), [&](const auto& property) { return property.name == name; });
}

TEST(UnitProperties, AreThoseOfTheAssignment) {
  const auto unit = unit_properties(worker(), host());
  EXPECT_EQ(get<std::string>(unit, "Description"), "digits worker-1, generation 2");
  EXPECT_EQ(get<std::string>(unit, "Slice"), "dtrain.slice");
  EXPECT_THAT(*get<std::vector<std::string>>(unit, "StopPropagatedFrom"), ElementsAre("dtrain-units.target"));
  EXPECT_THAT(*get<std::vector<std::string>>(unit, "Before"), ElementsAre("dtraind.service")) << "at a stop the agent ends first";
  EXPECT_EQ(get<Command>(unit, "ExecStart"), (Command{host().shim_path, {"dtrain-shim", host().directory, host().unit}}));
  EXPECT_EQ(get<std::string>(unit, "WorkingDirectory"), host().directory);
  EXPECT_EQ(get<std::uint64_t>(unit, "TimeoutStopUSec"), 40'000'000u);
  const auto fields = get<JournalFields>(unit, "LogExtraFields");
  EXPECT_THAT(fields->fields, ElementsAre("DTRAIN_JOB=digits", "DTRAIN_TASK=worker-1", "DTRAIN_GENERATION=2"));
  EXPECT_EQ(get<std::uint64_t>(unit, "LimitNOFILE"), 4096u);
  EXPECT_EQ(get<std::uint64_t>(unit, "LimitNOFILESoft"), 1024u);
  EXPECT_EQ(get<std::uint64_t>(unit, "CapabilityBoundingSet"), 0x1ffu);
  EXPECT_EQ(get<std::uint64_t>(unit, "TasksMax"), kMostUnitTasks);
}

// Any submitter may ask for days.
TEST(UnitProperties, NobodyHoldsUpAHostsStopForLong) {
  task::ShimSpec spec = worker();
  spec.stop_grace = 5min;
  EXPECT_EQ(get<std::uint64_t>(unit_properties(spec, host()), "TimeoutStopUSec"), 310'000'000u);
  spec.stop_grace = 24h;
  EXPECT_EQ(get<std::uint64_t>(unit_properties(spec, host()), "TimeoutStopUSec"), 310'000'000u);
}

// systemd sets the hard limit first: a soft one alone would set both.
TEST(UnitProperties, AHardLimitComesBeforeItsSoftOne) {
  const auto unit = unit_properties(worker(), host());
  const auto at = [&](const std::string& name) {
    return std::find_if(unit.begin(), unit.end(), [&](const auto& property) { return property.name == name; }) - unit.begin();
  };
  EXPECT_LT(at("LimitNOFILE"), at("LimitNOFILESoft"));
}

TEST(UnitProperties, NothingIsConfinedThatIsNotAskedFor) {
  const auto unit = unit_properties(worker(), host());
  for (const char* name : {"AllowedCPUs", "CPUAffinity", "NUMAPolicy", "NUMAMask", "MemoryMax", "DevicePolicy", "DeviceAllow"})
    EXPECT_FALSE(has(unit, name)) << name;
}

TEST(UnitProperties, CpusMemoryAndDevicesOfItsOwn) {
  task::ShimSpec spec = worker();
  spec.cpus = {1, 8};
  spec.numa_node = 1;
  spec.memory_bytes = 64 << 20;
  spec.own_gpus = {{"0000:10:00.0", "nvidia", 3}};
  UnitHost with_gpu = host();
  with_gpu.devices = {"/dev/nvidia3"};
  const auto unit = unit_properties(spec, with_gpu);
  EXPECT_EQ(get<Bytes>(unit, "AllowedCPUs"), (Bytes{2, 1}));
  EXPECT_EQ(get<Bytes>(unit, "CPUAffinity"), (Bytes{2, 1}));
  EXPECT_EQ(get<std::int32_t>(unit, "NUMAPolicy"), 1);  // MPOL_PREFERRED
  EXPECT_EQ(get<Bytes>(unit, "NUMAMask"), Bytes{2});
  EXPECT_EQ(get<std::uint64_t>(unit, "MemoryMax"), 64u << 20);
  EXPECT_EQ(get<std::string>(unit, "DevicePolicy"), "closed");
  const auto rules = get<DeviceRules>(unit, "DeviceAllow")->rules;
  EXPECT_THAT(rules, ::testing::Contains(std::pair<std::string, std::string>("/dev/nvidia3", "rw")));
  EXPECT_THAT(rules, ::testing::Each(::testing::Field(&std::pair<std::string, std::string>::second, "rw"))) << "nobody makes nodes";
}

// A task without GPUs opens none.
TEST(UnitProperties, NoGpuIsAConfinementToo) {
  task::ShimSpec spec = worker();
  spec.own_gpus.emplace();
  const auto unit = unit_properties(spec, host());
  EXPECT_EQ(get<std::string>(unit, "DevicePolicy"), "closed");
  const auto rules = get<DeviceRules>(unit, "DeviceAllow")->rules;
  for (const auto& [node, access] : rules) EXPECT_EQ(node.find("nvidia"), std::string::npos) << node;
}

TEST(UnitName, NamesTheAssignmentAndTheLaunch) {
  EXPECT_EQ(unit_name(worker().id, 0x1a2b3c4d), "dtrain-17.2.worker-1-1a2b3c4d.service");
  EXPECT_NE(unit_name(worker().id, 1), unit_name(worker().id, 2));
}

// ---------------------------------------------------------------- what took effect

struct Asked {
  Asked() {
    spec.cpus = {5, 4};
    spec.numa_node = 1;
    spec.memory_bytes = (64 << 20) + 1;
    spec.own_gpus.emplace();
    seen.cpus = seen.cpu_set = std::vector<std::uint32_t>{4, 5};
    seen.memory_policy = "prefer:1";
    seen.memory_bytes = 64 << 20;  // whole pages
    seen.most_tasks = kMostUnitTasks;
    seen.devices_closed = true;
    seen.limits["NOFILE"] = {1024, 4096};
    seen.oom_score = kShimOomScore;
  }
  std::vector<std::string> kinds() const {
    std::vector<std::string> found;
    for (const Difference& difference : compare(spec, host(), seen)) {
      found.push_back(difference.kind);
      EXPECT_FALSE(difference.error.message.empty());
      EXPECT_FALSE(difference.error.next.empty());
    }
    return found;
  }
  task::ShimSpec spec = worker();
  InForce seen;
};

TEST(TookEffect, AllOfIt) { EXPECT_THAT(Asked().kinds(), IsEmpty()); }

TEST(TookEffect, NothingAskedForNothingMissed) {
  Asked asked;
  asked.spec = worker();
  asked.seen = {};
  asked.seen.most_tasks = kMostUnitTasks;
  EXPECT_THAT(asked.kinds(), IsEmpty());
}

TEST(TookEffect, EachThatDidNotIsNamed) {
  const std::vector<std::pair<std::string, std::function<void(InForce&)>>> table = {
      {"cpus", [](InForce& seen) { seen.cpus = std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}; }},
      {"cpus", [](InForce& seen) { seen.cpus.reset(); }},
      {"cpu_set", [](InForce& seen) { seen.cpu_set.reset(); }},
      {"cpu_set",
       [](InForce& seen) {
         seen.cpu_set = std::vector<std::uint32_t>{0, 1};
       }},
      {"numa", [](InForce& seen) { seen.memory_policy = "default"; }},
      {"numa", [](InForce& seen) { seen.memory_policy = "prefer:10"; }},
      {"numa", [](InForce& seen) { seen.memory_policy.reset(); }},
      {"memory", [](InForce& seen) { seen.memory_bytes.reset(); }},
      {"memory", [](InForce& seen) { seen.memory_bytes = UINT64_MAX; }},
      {"memory", [](InForce& seen) { seen.memory_bytes = 32 << 20; }},
      {"tasks", [](InForce& seen) { seen.most_tasks.reset(); }},
      {"devices", [](InForce& seen) { seen.devices_closed = false; }},
      {"LimitNOFILE",
       [](InForce& seen) {
         seen.limits["NOFILE"] = {1024, 2048};
       }},
      {"oom", [](InForce& seen) { seen.oom_score = 0; }},
  };
  for (const auto& [kind, spoil] : table) {
    Asked asked;
    spoil(asked.seen);
    EXPECT_THAT(asked.kinds(), ElementsAre(kind));
  }
}

// Of one that its shim gave them to: it may have left some of them aside.
TEST(TookEffect, CpusOfAnAttempt) {
  using Numbers = std::vector<std::uint32_t>;
  const auto kinds = [](const Numbers& cpus, std::int32_t node, std::optional<Numbers> in_force, std::optional<std::string> policy) {
    InForce seen;
    seen.cpus = std::move(in_force);
    seen.memory_policy = std::move(policy);
    std::vector<std::string> found;
    for (const Difference& difference : compare_cpus(cpus, node, seen)) found.push_back(difference.kind);
    return found;
  };
  EXPECT_THAT(kinds({5, 4}, 1, Numbers{4, 5}, "prefer:1"), IsEmpty());
  EXPECT_THAT(kinds({5, 4}, -1, Numbers{4}, "default"), IsEmpty());
  EXPECT_THAT(kinds({5, 4}, -1, Numbers{4, 5, 6}, "default"), ElementsAre("cpus"));
  EXPECT_THAT(kinds({5, 4}, 1, Numbers{0, 1}, "default"), ElementsAre("cpus", "numa"));
  EXPECT_THAT(kinds({5, 4}, 1, Numbers{4, 5}, std::nullopt), ElementsAre("numa"));
  EXPECT_THAT(kinds({5, 4}, 1, Numbers{4, 5}, ""), IsEmpty()) << "it has ended";
  EXPECT_THAT(kinds({5, 4}, 1, std::nullopt, std::nullopt), IsEmpty()) << "and nobody knows it any more";
}

TEST(TookEffect, ThisProcessIsReadAsTheKernelHasIt) {
  const InForce seen = look_at(::getpid());
  ASSERT_TRUE(seen.cpus);
  EXPECT_FALSE(seen.cpus->empty());
  EXPECT_EQ(look_at_cpus(::getpid()).cpus, seen.cpus);
  // Where the kernel knows NUMA nodes at all.
  EXPECT_EQ(look_at_cpus(::getpid()).memory_policy.has_value(), ::access("/proc/self/numa_maps", R_OK) == 0);
  EXPECT_EQ(seen.limits.count("NOFILE"), 1u);
  EXPECT_TRUE(seen.oom_score);
}

TEST(TookEffect, AListOfCpus) {
  EXPECT_THAT(parse_cpu_list("0-2,8\n"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(parse_cpu_list("\n"), IsEmpty());
}

}  // namespace
}  // namespace dtrain::proc
