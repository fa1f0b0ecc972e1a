#include "agent/dtraind/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "agent/dtraind/options.h"
#include "agent/store/file.h"

namespace dtrain::daemon {
namespace {

using ::testing::HasSubstr;

LoadedConfig read(const std::string& text, const Sets& sets = {}) { return read_config(text, "f.yaml", sets); }

std::string errors_of(const LoadedConfig& loaded) {
  std::string all;
  for (const auto& error : loaded.errors) all += error.text() + "\n";
  return all;
}

TEST(Config, TheShippedFileHoldsExactlyTheDefaults) {
  const std::string path = std::string(DTRAIN_SOURCE_DIR) + "/config/dtraind.yaml";
  const auto text = store::read_file(path, 1 << 20);
  ASSERT_TRUE(text);
  const LoadedConfig shipped = read(*text);
  EXPECT_EQ(errors_of(shipped), "");
  const Config& a = shipped.config;
  const Config b = read("").config;
  EXPECT_EQ(a.cluster.name, b.cluster.name);
  EXPECT_EQ(a.cluster.expect, b.cluster.expect);
  EXPECT_EQ(a.network.listen, b.network.listen);
  EXPECT_EQ(a.network.task_ports.first, b.network.task_ports.first);
  EXPECT_EQ(a.network.key_file, b.network.key_file);
  EXPECT_EQ(a.paths.data, b.paths.data);
  EXPECT_EQ(a.paths.run, b.paths.run);
  EXPECT_EQ(a.tasks.cpu_binding, b.tasks.cpu_binding);
  EXPECT_EQ(a.tasks.ulimits, b.tasks.ulimits);
  EXPECT_EQ(a.tasks.log_file_bytes, b.tasks.log_file_bytes);
  EXPECT_EQ(a.tasks.log_keep_for, b.tasks.log_keep_for);
  EXPECT_EQ(a.health_check.every, b.health_check.every);
  EXPECT_EQ(a.timing.agent_grace, b.timing.agent_grace);
  EXPECT_EQ(a.timing.restore_wait, b.timing.restore_wait);
  EXPECT_EQ(a.storage.checkpoint_rate, b.storage.checkpoint_rate);
  EXPECT_EQ(a.storage.package_cache, b.storage.package_cache);
  EXPECT_EQ(a.storage.min_free.percent, b.storage.min_free.percent);
  EXPECT_FALSE(a.resources.gpus);
  EXPECT_FALSE(a.resources.reserve_memory);
}

TEST(Config, ReadsEveryKey) {
  const LoadedConfig loaded = read(R"(
cluster: {name: lab, found: true, expect: 3}
node: {name: n1, labels: {zone: a, rack: r1}, council: never}
network:
  listen: 10.0.0.1:7400
  advertise: 10.0.0.11
  taskAddress: ib0
  taskPorts: 30000-30999
  join: [gpu01, "gpu02:7400"]
  keyFile: /etc/key
paths: {data: /d, run: /r, work: /w}
resources: {gpus: 4, topology: /t.xml, excludeGpus: [0000:01:00.0, 3], reserve: {cpus: 500m, memory: 2Gi}}
tasks:
  launch: direct
  cgroup: /dtrain.slice/dtrain-tasks.service
  cpuBinding: false
  allowRoot: true
  passEnv: [LD_LIBRARY_PATH]
  devices: [/dev/sg0, char-nvidia-*]
  ulimits: {nofile: 100, memlock: 5, core: unlimited}
  logs: {fileSize: 1Mi, files: 3, keepFor: 1d}
  prolog: /p
  epilog: /e
healthCheck: {command: [/bin/true], every: 5s, timeout: 1s}
timing: {lease: 4s, downGrace: 2s, agentGrace: 3s, stopAfter: 4s, restoreWait: 5s}
access: {users: {mluser: submit, ops: operate}, default: submit, keys: {ABcd000000000000000000000000000000000000000000000000000000000000: mluser}}
storage: {checkpointRate: 1Mi/s, packageCache: 1Gi, minFree: 10Gi}
http: 127.0.0.1:8080
log: {level: debug}
)");
  ASSERT_EQ(errors_of(loaded), "");
  const Config& c = loaded.config;
  EXPECT_EQ(c.cluster.name, "lab");
  EXPECT_TRUE(c.cluster.found);
  EXPECT_EQ(c.cluster.expect, 3u);
  EXPECT_EQ(c.node.name, "n1");
  EXPECT_EQ(c.node.labels.at("rack"), "r1");
  EXPECT_TRUE(c.node.council_never);
  EXPECT_EQ(c.network.listen, "10.0.0.1:7400");
  EXPECT_TRUE(c.network.listen_given);
  EXPECT_EQ(c.network.task_ports.last, 30999);
  EXPECT_EQ(c.network.join.size(), 2u);
  EXPECT_EQ(c.paths.work, "/w");
  EXPECT_EQ(c.resources.gpus, 4u);
  EXPECT_EQ(c.resources.exclude_gpus, (std::vector<std::string>{"0000:01:00.0", "3"}));
  EXPECT_EQ(c.resources.topology, "/t.xml");
  EXPECT_EQ(c.resources.reserve_cpu_millis, 500u);
  EXPECT_EQ(c.resources.reserve_memory, 2ull << 30);
  EXPECT_EQ(c.tasks.launch, Launch::direct);
  EXPECT_EQ(c.tasks.cgroup, "/dtrain.slice/dtrain-tasks.service");
  EXPECT_FALSE(c.tasks.cpu_binding);
  EXPECT_TRUE(c.tasks.allow_root);
  EXPECT_EQ(c.tasks.ulimits.at("core"), std::uint64_t{RLIM_INFINITY});
  EXPECT_EQ(c.tasks.devices, (std::vector<std::string>{"/dev/sg0", "char-nvidia-*"}));
  EXPECT_EQ(c.tasks.log_files, 3u);
  EXPECT_EQ(c.health_check.command.at(0), "/bin/true");
  EXPECT_EQ(std::ranges::count(c.without_effect, "healthCheck"), 0);
  EXPECT_EQ(std::ranges::count(c.without_effect, "tasks.prolog") + std::ranges::count(c.without_effect, "tasks.epilog"), 0);
  EXPECT_EQ(c.timing.restore_wait, 5s);
  EXPECT_EQ(c.access.users.at("ops"), Role::operate);
  EXPECT_EQ(c.access.fallback, Role::submit);
  ASSERT_EQ(c.client_keys.size(), 1u);
  EXPECT_EQ(c.client_keys.at("abcd" + std::string(60, '0')), "mluser") << "in lower case, however it was written";
  EXPECT_EQ(c.storage.checkpoint_rate, 1u << 20);
  EXPECT_EQ(c.storage.min_free.bytes, 10ull << 30);
  EXPECT_EQ(c.http, "127.0.0.1:8080");
  EXPECT_EQ(c.log_level, LogLevel::debug);
}

TEST(Config, NamesFileLinePathAndTheNearestKey) {
  const std::string all =
      errors_of(read("cluster:\n  nmae: x\nnetwrok:\n  listen: x\ntasks:\n  allowRoot: yes\n"
                     "network:\n  taskPorts: 5-4\n"));
  EXPECT_THAT(all, HasSubstr("f.yaml:2: cluster.nmae: unknown key `nmae`; did you mean `name`?"));
  EXPECT_THAT(all, HasSubstr("f.yaml:3: netwrok: unknown key `netwrok`; did you mean `network`?"));
  EXPECT_THAT(all, HasSubstr("f.yaml:6: tasks.allowRoot: must be true or false"));
  EXPECT_THAT(all, HasSubstr("f.yaml:8: network.taskPorts: must be FIRST-LAST"));
}

TEST(Config, RefusesWrongValues) {
  const char* const bad[] = {
      "cluster: {name: Ärger}",
      "cluster: {expect: 0}",
      "node: {name: Node_1}",
      "node: {labels: {\"a b\": c}}",
      "node: {council: maybe}",
      "tasks: {cgroup: dtrain.slice}",
      "network: {listen: here}",
      "network: {taskPorts: 80-90}",
      "paths: {data: relative}",
      "resources: {gpus: many}",
      "resources: {excludeGpus: [first]}",
      "resources: {gpus: 65}",
      "resources: {reserve: {memory: lots}}",
      "tasks: {launch: docker}",
      "tasks: {ulimits: {nofile: x}}",
      "tasks: {ulimits: {stack: 1}}",
      "tasks: {logs: {fileSize: 1}}",
      "tasks: {devices: [/etc/shadow]}",
      "tasks: {devices: [\"/dev/a b\"]}",
      "tasks: {devices: [/dev/../x]}",
      "tasks: {devices: [char-]}",
      "timing: {lease: 2s}",
      "timing: {lease: 10}",
      "access: {users: {a: admin}}",
      "access: {keys: {abc: anne}}",
      "storage: {checkpointRate: 5}",
      "storage: {minFree: 95%}",
      "http: x",
      "log: {level: loud}",
      "- a list",
      "{{{",
      "network: {join: gpu01}",
      "network: {join: [\"gpu01:x\"]}",
      "network: {listen: \"10.0.0.1:65534\"}",
  };
  for (const char* text : bad) EXPECT_FALSE(read(text).errors.empty()) << text;
}

TEST(Config, KeysOfClientsAreWholeAndOfSomebody) {
  const std::string key(64, 'a'), other_case(64, 'A');
  EXPECT_THAT(errors_of(read("access: {keys: {" + key + ": ''}}")), HasSubstr("must be the name of a user of this host"));
  EXPECT_THAT(errors_of(read("access: {keys: {" + key + ": anne, " + other_case + ": bob}}")), HasSubstr("must be there once"));
  // What is wrong may be a secret in the wrong place: it is not repeated whole.
  const std::string secret = "dtrain-client-v1 " + key;
  const std::string said = errors_of(read("access: {keys: {\"" + secret + "\": anne}}"));
  EXPECT_THAT(said, HasSubstr("must be public keys of 64 hexadecimal digits"));
  EXPECT_EQ(said.find(key), std::string::npos);
  std::string many = "access:\n  keys:\n";
  for (int i = 0; i <= 1024; ++i) many += "    " + key.substr(8) + std::to_string(10'000'000 + i) + ": anne\n";
  EXPECT_THAT(errors_of(read(many)), HasSubstr("must be at most 1024 keys, not 1025"));
}

TEST(Config, LabelsMustFitIntoWhatANodeTellsOfItself) {
  const auto labels = [](int count, std::size_t value_bytes) {
    std::string text = "node:\n  labels:\n";
    for (int i = 10; i < 10 + count; ++i) text += "    l" + std::to_string(i) + ": " + std::string(value_bytes, 'v') + "\n";
    return errors_of(read(text));
  };
  EXPECT_EQ(labels(64, 61), "");  // 4096 bytes
  EXPECT_THAT(labels(65, 1), HasSubstr("f.yaml:2: node.labels: must be at most 64 labels, not 65"));
  EXPECT_THAT(labels(64, 62), HasSubstr("f.yaml:2: node.labels: must have at most 4096 bytes of names and values together, not 4160"));
}

TEST(Config, EmptySectionsAndCommentsSayNothing) {
  EXPECT_EQ(errors_of(read("# nothing\n")), "");
  EXPECT_EQ(errors_of(read("tasks:\nnode:\n")), "");
}

TEST(Config, TheCommandLineWins) {
  const LoadedConfig loaded = read("node: {name: a}\nnetwork: {join: [x]}\n", {{"node.name", "b"},
                                                                               {"network.join", "y,z:1"},
                                                                               {"node.labels", "zone=a,rack=r"},
                                                                               {"tasks.allowRoot", "true"},
                                                                               {"access.users", "me=operate"},
                                                                               {"access.keys", std::string(64, '1') + "=me"}});
  ASSERT_EQ(errors_of(loaded), "");
  EXPECT_EQ(loaded.config.node.name, "b");
  EXPECT_EQ(loaded.config.network.join, (std::vector<std::string>{"y", "z:1"}));
  EXPECT_EQ(loaded.config.node.labels.at("rack"), "r");
  EXPECT_TRUE(loaded.config.tasks.allow_root);
  EXPECT_EQ(loaded.config.access.users.at("me"), Role::operate);
  EXPECT_EQ(loaded.config.client_keys.at(std::string(64, '1')), "me");
}

TEST(Config, CommandLineMistakesSayWhereTheyCameFrom) {
  EXPECT_THAT(errors_of(read("", {{"tasks.allowRot", "true"}})), HasSubstr("did you mean `allowRoot`?"));
  EXPECT_THAT(errors_of(read("", {{"node.labels", "zone"}})), HasSubstr("command line: node.labels: must be a map"));
  EXPECT_THAT(errors_of(read("", {{"network.listen", "x"}})), HasSubstr("command line: network.listen"));
}

TEST(Config, AMissingFileThatWasNamedIsAnError) {
  const auto loaded = load_config("/nonexistent/dtraind.yaml", {});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::not_found);
}

Result<CommandLine> parse(std::vector<std::string> args) {
  args.insert(args.begin(), "dtraind");
  std::vector<char*> argv;
  for (auto& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  return parse_command_line(static_cast<int>(args.size()), argv.data());
}

TEST(Options, FlagsAreKeys) {
  const auto line = parse({"--found", "--name", "b1", "--listen=127.0.7.1:7400", "--set", "tasks.allowRoot=true", "--data-dir", "/d"});
  ASSERT_TRUE(line) << line.error().text();
  const LoadedConfig loaded = read("", line->sets);
  ASSERT_EQ(errors_of(loaded), "");
  EXPECT_TRUE(loaded.config.cluster.found);
  EXPECT_EQ(loaded.config.node.name, "b1");
  EXPECT_EQ(loaded.config.network.listen, "127.0.7.1:7400");
  EXPECT_TRUE(loaded.config.tasks.allow_root);
  EXPECT_EQ(loaded.config.paths.data, "/d");
}

TEST(Options, MistakesAreNamed) {
  EXPECT_THAT(parse({"--fuond"}).error().text(), HasSubstr("did you mean --found?"));
  EXPECT_THAT(parse({"--name"}).error().text(), HasSubstr("--name needs a value"));
  EXPECT_THAT(parse({"extra"}).error().text(), HasSubstr("unexpected argument \"extra\""));
  EXPECT_THAT(parse({"--set", "x"}).error().text(), HasSubstr("--set needs key.sub=value"));
  EXPECT_THAT(parse({"--found=yes"}).error().text(), HasSubstr("--found=yes"));
}

TEST(Options, EveryFlagIsInTheUsage) {
  for (const char* flag : {"--config", "--dev", "--found", "--join", "--check-config", "--http"})
    EXPECT_THAT(usage_text(), HasSubstr(flag));
}

}  // namespace
}  // namespace dtrain::daemon
