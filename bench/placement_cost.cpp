// placement_cost HOSTS JOBS ROUNDS: CPU time of placing one job on HOSTS hosts while JOBS others run, of one decision of the
// queue, and the memory of both. Prints one line per sample: WHAT MICROSECONDS, and `memory` in bytes at the end.
#include <sys/resource.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/cluster/queue.h"

namespace {

using namespace dtrain;
using namespace dtrain::cluster;

constexpr std::uint32_t kGpus = 8, kHostsInRack = 40;

std::vector<HostCapacity> make_hosts(std::uint32_t count) {
  std::vector<HostCapacity> hosts(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    HostCapacity& h = hosts[i];
    h.name = "host-" + std::to_string(i);
    h.id = std::string(32 - h.name.size(), '0') + h.name;
    h.task_address = "10." + std::to_string(i / 62500) + "." + std::to_string(i / 250 % 250) + "." + std::to_string(i % 250);
    h.cpu_millis = 64'000;
    h.memory_bytes = 512ull << 30;
    h.labels = {{"rack", "r" + std::to_string(i / kHostsInRack)}, {"zone", i % 2 == 0 ? "a" : "b"}};
    for (std::uint32_t g = 0; i % 10 != 0 && g < kGpus; ++g)
      h.gpus.push_back({g, "NVIDIA A100-SXM4-80GB", true, static_cast<std::int32_t>(g / 4)});
  }
  return hosts;
}

job::RoleSpec role(std::uint32_t replicas, std::uint64_t cpus, std::uint32_t gpus) {
  job::RoleSpec r;
  r.replicas = r.min_replicas = replicas;
  r.command = {"python3", "train.py"};
  r.resources = {cpus * 1000, cpus << 31, gpus, ""};
  return r;
}

// Returns a parameter-server job or a collective one.
job::JobSpec make_job(std::uint32_t workers, bool collective) {
  job::JobSpec s;
  s.name = "job-of-" + std::to_string(workers);
  s.framework = job::Framework::tensorflow;
  s.roles["worker"] = role(workers, 7, 1);
  s.roles["worker"].node_selector["zone"] = "a";
  if (collective) return s;
  s.roles["ps"] = role(workers / 20 + 1, 4, 0);
  s.roles["ps"].avoid_gpu_hosts = job::AvoidGpuHosts::prefer;
  s.roles["chief"] = role(1, 4, 1);
  return s;
}

double cpu_us() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

std::uint32_t number(const char* text) {
  std::uint32_t n = 0;
  std::from_chars(text, text + std::strlen(text), n);
  return n;
}

template <class Work>
void sample(const std::string& what, Work work) {
  const double begin = cpu_us();
  work();
  std::printf("%s %.0f\n", what.c_str(), cpu_us() - begin);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 || number(argv[1]) == 0 || number(argv[3]) == 0) {
    std::fputs("usage: placement_cost HOSTS JOBS ROUNDS\n", stderr);
    return 64;
  }
  const std::uint32_t jobs = number(argv[2]), rounds = number(argv[3]);
  Capacity free(make_hosts(number(argv[1])));
  // Adds running jobs of 1 to 50 workers, so that hosts are used unevenly.
  Rng rng(1);
  std::vector<job::JobSpec> specs(jobs);
  std::vector<RunningJob> running;
  for (std::uint32_t i = 0; i < jobs; ++i) {
    specs[i] = make_job(1 + static_cast<std::uint32_t>(rng.below(50)), i % 2 == 0);
    auto placed = place(specs[i], wanted_tasks(specs[i]), free);
    if (!placed) continue;
    free.hold(specs[i], *placed);
    running.push_back({i + 1, &specs[i], std::move(*placed), std::chrono::seconds(i), {}, false});
  }
  std::fprintf(stderr, "%zu of %u jobs run\n", running.size(), jobs);
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (const std::uint32_t workers : {1u, 10u, 100u, 1000u})
      for (const bool collective : {false, true}) {
        const job::JobSpec spec = make_job(workers, collective);
        const auto tasks = wanted_tasks(spec);
        bool fits = false;
        sample((collective ? "ranks-" : "ps-worker-") + std::to_string(workers), [&] { fits = place(spec, tasks, free).has_value(); });
        if (!fits) std::fprintf(stderr, "%u workers did not fit\n", workers);
      }
    job::JobSpec large = make_job(10, true);
    large.roles["worker"].resources.gpus = kGpus + 1;
    sample("refused", [&] { (void)place(large, wanted_tasks(large), free); });
    // Builds the queue of a full cluster: one large job waits, and many small ones behind it.
    job::JobSpec first = make_job(1, true), behind = make_job(5, false);
    first.roles["worker"] = role(number(argv[1]) / 2, 60, kGpus);
    std::vector<WaitingJob> waiting;
    for (std::uint32_t i = 0; i < 1000; ++i) {
      const job::JobSpec& spec = i == 0 ? first : behind;
      waiting.push_back({10'000 + i, &spec, wanted_tasks(spec), std::chrono::seconds(5000 + i), {}, false, {}});
    }
    JobQueue queue;
    sample("decision-first", [&] { (void)queue.decide(free, running, waiting, std::chrono::seconds(7000)); });
    sample("decision-next", [&] { (void)queue.decide(free, running, waiting, std::chrono::seconds(7001)); });
  }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::printf("memory %ld\n", used.ru_maxrss * 1024);
  return 0;
}
