// What is run for a task in an image, by value.
#include "common/job/container_engine.h"

#include <gmock/gmock.h>

namespace dtrain::job {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const ContainerEngine& podman() { return *find_engine("podman"); }

InImage worker() {
  InImage task;
  task.program = "/usr/bin/podman";
  task.name = "dtrain-7-12.1.worker-0";
  task.image = "localhost/small";
  task.uid = 1000;
  task.gid = 100;
  task.work_dir = "/var/lib/dtrain/work/12";
  task.directories = {"/var/lib/dtrain/work/12/", "/data/in", "/data"};
  task.devices = {"nvidia.com/gpu=0"};
  task.argv = {"python3", "train.py"};
  task.env = {{"RANK", "3"}, {"SECRET", "key"}};
  task.later = {"DTRAIN_ATTEMPT"};
  task.surroundings = {{"HOME", "/home/ada"}, {"PATH", "/usr/bin:/bin"}};
  return task;
}

TEST(Podman, RunsTheCommandAsTheUserInTheHostsSurroundings) {
  const auto started = podman().run(worker());
  ASSERT_TRUE(started);
  EXPECT_THAT(
      started->argv,
      ElementsAre("/bin/sh", "-c",
                  "p=$1 n=$2; shift 2; \"$p\" --cgroup-manager=cgroupfs --log-level=error rm --force --ignore --volumes --time=0 \"$n\" "
                  ">/dev/null 2>&1 || \"$p\" --cgroup-manager=cgroupfs --log-level=error rm --force --ignore --volumes --time=0 \"$n\" "
                  ">/dev/null; exec \"$p\" --cgroup-manager=cgroupfs --log-level=error run --name=\"$n\" \"$@\"",
                  "dtrain", "/usr/bin/podman", "dtrain-7-12.1.worker-0", "--rm", "--init", "--pull=never", "--cgroups=disabled",
                  "--network=host", "--uts=host", "--ulimit=host", "--security-opt=label=disable", "--log-driver=passthrough",
                  "--sdnotify=ignore", "--entrypoint=", "--volume=/dev/shm:/dev/shm", "--user=1000:100", "--userns=keep-id",
                  "--group-add=keep-groups", "--workdir=/var/lib/dtrain/work/12", "--volume=/data:/data",
                  "--volume=/var/lib/dtrain/work/12:/var/lib/dtrain/work/12", "--device=nvidia.com/gpu=0", "--env=RANK", "--env=SECRET",
                  "--env=DTRAIN_ATTEMPT", "localhost/small", "python3", "train.py"));
  EXPECT_THAT(started->env,
              UnorderedElementsAre(Pair("RANK", "3"), Pair("SECRET", "key"), Pair("HOME", "/home/ada"), Pair("PATH", "/usr/bin:/bin")));
}

// Arguments are there for everybody to read; what podman itself would obey must not reach it.
TEST(Podman, IsGivenWhatItReadsItselfByValueAndAllElseByName) {
  InImage task = worker();
  task.env = {{"HOME", "/workspace"},    {"PATH", "/opt/conda/bin"}, {"LD_PRELOAD", "/lib/x.so"}, {"XDG_RUNTIME_DIR", "/x"},
              {"STORAGE_DRIVER", "zfs"}, {"NOTIFY_SOCKET", "@n"},    {"TOKEN", "secret"},         {"DTRAIN_ATTEMPT", "mine"}};
  const auto started = podman().run(task);
  ASSERT_TRUE(started);
  for (const char* by_value : {"--env=HOME=/workspace", "--env=PATH=/opt/conda/bin", "--env=LD_PRELOAD=/lib/x.so",
                               "--env=XDG_RUNTIME_DIR=/x", "--env=STORAGE_DRIVER=zfs", "--env=NOTIFY_SOCKET=@n", "--env=TOKEN"})
    EXPECT_THAT(started->argv, Contains(by_value).Times(1));
  EXPECT_THAT(started->argv, Contains("--env=DTRAIN_ATTEMPT").Times(1)) << "the job's own";
  EXPECT_THAT(started->argv, Not(Contains(HasSubstr("secret"))));
  EXPECT_THAT(started->env, UnorderedElementsAre(Pair("HOME", "/home/ada"), Pair("PATH", "/usr/bin:/bin"), Pair("TOKEN", "secret"),
                                                 Pair("DTRAIN_ATTEMPT", "mine")));
}

TEST(Podman, RootHasNoOtherUsersToMap) {
  InImage task = worker();
  task.uid = task.gid = 0;
  const auto started = podman().run(task);
  ASSERT_TRUE(started);
  EXPECT_THAT(started->argv, AllOf(Contains("--user=0:0"), Not(Contains("--userns=keep-id"))));
}

TEST(Podman, RanksOfOneTaskHaveAContainerEach) {
  InImage task = worker();
  task.later = {"LOCAL_RANK"};
  task.rank = "LOCAL_RANK";
  const auto started = podman().run(task);
  ASSERT_TRUE(started);
  EXPECT_THAT(started->argv.at(2), HasSubstr("n=$2-$LOCAL_RANK; "));
}

TEST(Podman, RefusesAPathThatItWouldMisread) {
  InImage task = worker();
  task.directories = {"/a:b"};
  const auto started = podman().run(task);
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().message, HasSubstr("`/a:b` cannot be mounted"));
}

TEST(Podman, LooksAndPulls) {
  const auto look = podman().look("/p", "a/b:1");
  EXPECT_THAT(look, ElementsAre("/bin/sh", "-c", HasSubstr("exec \"$p\" --cgroup-manager=cgroupfs --log-level=error image exists \"$2\""),
                                "dtrain", "/p", "a/b:1"));
  EXPECT_THAT(podman().pull("/p", "a/b:1"),
              ElementsAre("/bin/sh", "-c", HasSubstr("\"$p\" --cgroup-manager=cgroupfs --log-level=error pull --quiet \"$2\""), "dtrain",
                          "/p", "a/b:1"));
  EXPECT_TRUE(podman().only_here("localhost/a"));
  EXPECT_FALSE(podman().only_here("localhosts.example/a"));
}

using Then = PullFault::Then;

TEST(Podman, KnowsWhatAFailedPullMeans) {
  const auto fault = [](std::string_view complaint) { return fault_of(podman(), complaint); };
  EXPECT_EQ(fault("Error: initializing source docker://x: reading manifest 9 in x: manifest unknown").then, Then::never);
  EXPECT_EQ(fault("Error: dial tcp: lookup registry: i/o timeout").then, Then::again);
  EXPECT_EQ(fault("Error: writing blob: no space left on device").then, Then::elsewhere);
  EXPECT_THAT(std::string(fault("Error: unauthorized: authentication required").next), HasSubstr("podman login"));
  EXPECT_EQ(fault("").then, Then::again);
}

TEST(Enroot, KnowsWhatAFailedPullMeans) {
  const auto fault = [](std::string_view complaint) { return fault_of(*find_engine("enroot"), complaint); };
  EXPECT_EQ(fault("[ERROR] URL x returned error code: 404 Not Found").then, Then::never);
  EXPECT_EQ(fault("[ERROR] URL x returned error code: 503 Service Unavailable").then, Then::again);
  EXPECT_THAT(std::string(fault("[ERROR] URL x returned error code: 401 Unauthorized").next), HasSubstr(".credentials"));
  EXPECT_EQ(fault("cp: x: No space left on device").then, Then::elsewhere);
}

// AMD's GPUs, and all without CDI, are device nodes; an enroot that knows no NVIDIA GPU of the task shows none.
TEST(ContainerEngines, DeviceNodesAreGivenAsTheyAre) {
  InImage task = worker();
  task.devices = {"/dev/dri/renderD128", "/dev/kfd"};
  const auto in_podman = podman().run(task);
  ASSERT_TRUE(in_podman);
  EXPECT_THAT(in_podman->argv, AllOf(Contains("--device=/dev/dri/renderD128"), Contains("--device=/dev/kfd"),
                                     Contains("--group-add=keep-groups"), Not(Contains(HasSubstr("nvidia")))))
      << "the nodes belong to groups such as render, which the task keeps";
  const auto in_enroot = find_engine("enroot")->run(task);
  ASSERT_TRUE(in_enroot);
  EXPECT_THAT(in_enroot->argv, AllOf(Contains("--mount=/dev/dri/renderD128:/dev/dri/renderD128"), Contains("--mount=/dev/kfd:/dev/kfd"),
                                     Contains("--env=NVIDIA_VISIBLE_DEVICES=void")));
}

const ContainerEngine& enroot() { return *find_engine("enroot"); }

TEST(Enroot, RunsTheCommandByAShellInTheImage) {
  InImage task = worker();
  task.program = "/usr/bin/enroot";
  task.image = "registry.example/a/b:1";
  task.devices = {"/dev/infiniband/uverbs0"};
  const auto started = enroot().run(task);
  ASSERT_TRUE(started);
  EXPECT_THAT(
      started->argv,
      ElementsAre("/bin/sh", "-c",
                  "p=$1; shift; [ -e /dev/log ] && [ -e /dev/mqueue ] && export ENROOT_RESTRICT_DEV=yes; exec \"$p\" start "
                  "--rc=/dev/stdin \"$@\" <<'DTRAIN'\nexec 3<&- </dev/null\nn='\n'\nexport PATH\neval "
                  "\"$DTRAIN_ENROOT_0\"\nunset n DTRAIN_ENROOT_0\nexec \"$@\"\nDTRAIN\n",
                  "dtrain", "/usr/bin/enroot", "--env=container=enroot", "--env=DTRAIN_ENROOT_0", "--env=DTRAIN_ATTEMPT",
                  "--env=NVIDIA_VISIBLE_DEVICES=void", "--mount=/data:/data", "--mount=/var/lib/dtrain/work/12:/var/lib/dtrain/work/12",
                  "--mount=/dev/infiniband/uverbs0:/dev/infiniband/uverbs0", "--", "registry.example+a+b:1", "python3", "train.py"));
  EXPECT_THAT(started->env, UnorderedElementsAre(
                                Pair("HOME", "/home/ada"), Pair("PATH", "/usr/bin:/bin"), Pair("DTRAIN_IMAGE", "registry.example/a/b:1"),
                                Pair("ENROOT_LOGIN_SHELL", "no"), Pair("ENROOT_MOUNT_HOME", "no"), Pair("ENROOT_REMAP_ROOT", "no"),
                                Pair("ENROOT_RESTRICT_DEV", "no"), Pair("ENROOT_ROOTFS_WRITABLE", "no"),
                                Pair("DTRAIN_ENROOT_0",
                                     "export RANK='3';export SECRET='key';cd '/var/lib/dtrain/work/12'||exit;export PWD;unset OLDPWD;")));
}

TEST(Enroot, ItsGpusAreItsOwn) {
  InImage task = worker();
  task.devices = {"nvidia.com/gpu=GPU-4f", "nvidia.com/gpu=GPU-50"};
  const auto started = enroot().run(task);
  ASSERT_TRUE(started);
  EXPECT_THAT(started->argv, AllOf(Contains("--env=NVIDIA_VISIBLE_DEVICES=GPU-4f,GPU-50"), Not(Contains(HasSubstr("nvidia.com/gpu")))));
}

TEST(Enroot, NoTextOfAVariableIsReadAsAnything) {
  InImage task = worker();
  task.env = {{"A", "it's \"$x\" `y`\nENROOT_B=1\\n"}};
  const auto started = enroot().run(task);
  ASSERT_TRUE(started);
  EXPECT_THAT(started->env.at("DTRAIN_ENROOT_0"), HasSubstr("export A='it'\\''s \"$x\" `y`'\"$n\"'ENROOT_B=1\\n';cd "));
}

TEST(Enroot, ManyVariablesAreInSeveral) {
  InImage task = worker();
  task.env = {{"A", std::string(60 << 10, 'a')}, {"B", std::string(60 << 10, 'b')}};
  const auto started = enroot().run(task);
  ASSERT_TRUE(started);
  EXPECT_THAT(started->argv, AllOf(Contains("--env=DTRAIN_ENROOT_0"), Contains("--env=DTRAIN_ENROOT_1")));
  EXPECT_THAT(started->env.at("DTRAIN_ENROOT_1"), ::testing::StartsWith("export B='b"));
}

TEST(Enroot, RefusesWhatItWouldMisread) {
  for (const char* path : {"/a:b", "/a b"}) {
    InImage task = worker();
    task.directories = {path};
    const auto started = enroot().run(task);
    ASSERT_FALSE(started) << path;
    EXPECT_THAT(started.error().message, HasSubstr("cannot be mounted"));
  }
  InImage task = worker();
  task.env = {{"a.b", "c"}};
  EXPECT_THAT(enroot().run(task).error().message, HasSubstr("the variable `a.b`"));
}

TEST(Enroot, LooksAndPulls) {
  EXPECT_THAT(enroot().look("/e", "a/b:1"), ElementsAre("/bin/sh", "-c", HasSubstr("[ -d \"$d/$i\" ]"), "dtrain", "/e", "a+b:1"));
  EXPECT_THAT(enroot().pull("/e", "docker.io/a/b:1"),
              ElementsAre("/bin/sh", "-c", HasSubstr("load --name root"), "dtrain", "/e", "docker.io+a+b:1", "docker://docker.io#a/b:1"));
  EXPECT_EQ(enroot().pull("/e", "a/b:1").back(), "docker://a/b:1");
  EXPECT_TRUE(enroot().only_here("localhost/a"));
}

TEST(ContainerEngines, AreFoundByName) {
  EXPECT_EQ(find_engine("podman"), container_engines().front());
  EXPECT_EQ(find_engine("docker"), nullptr);
  EXPECT_EQ(engine_names(), "podman or enroot");
}

TEST(ContainerEngines, DirectoriesInOthersAreNotMountedTwice) {
  EXPECT_THAT(without_nested({"/b", "/a/c", "/a", "/a/", "/ab"}), ElementsAre("/a", "/ab", "/b"));
  EXPECT_THAT(without_nested({"/a", "/"}), ElementsAre("/"));
}

TEST(ContainerEngines, NamesOfCdiAreThoseOfTheSpecification) {
  const char* yaml =
      "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits: {}\n- name: GPU-4f\n- name: all\n";
  EXPECT_THAT(cdi_names(yaml, {"0"}), ElementsAre("nvidia.com/gpu=0"));
  EXPECT_THAT(cdi_names(yaml, {"GPU-4f", "0"}), ElementsAre("nvidia.com/gpu=GPU-4f", "nvidia.com/gpu=0"));
  EXPECT_THAT(cdi_names(yaml, {"0", "1"}), IsEmpty()) << "all or none";
  EXPECT_THAT(cdi_names(yaml, {"GPU-4"}), IsEmpty());
  EXPECT_THAT(cdi_names(R"({"kind":"nvidia.com/gpu","devices":[{"name":"1"}]})", {"1"}), ElementsAre("nvidia.com/gpu=1"));
  EXPECT_THAT(cdi_names("kind: intel.com/gpu\ndevices:\n- name: \"0\"", {"0"}), IsEmpty());
  EXPECT_THAT(cdi_names("", {}), IsEmpty());
}

TEST(ContainerEngines, ANameThatLooksLikeAnOptionIsNone) {
  for (const char* good : {"", "python", "docker.io/library/python:3.11", "localhost/small", "registry:5000/a/b@sha256:00"})
    EXPECT_TRUE(is_image_name(good)) << good;
  for (const char* bad : {"-v", "--privileged", "a b", "/a", "a;b", "a\n"}) EXPECT_FALSE(is_image_name(bad)) << bad;
  EXPECT_FALSE(is_image_name(std::string(kImageNameBytes + 1, 'a')));
}

}  // namespace
}  // namespace dtrain::job
