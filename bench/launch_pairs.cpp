// launch_pairs SHIM DIRECTORY FIRST_STAMP PAIRS: for bench/launch_systemd.py, on a host whose PID 1 is systemd, by root. Launches
// FIRST_STAMP directly and through systemd in turn, the order changing from pair to pair. One line a pair: ms from the order to the task's
// own first stamp, directly and through systemd.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "agent/proc/shim_runner.h"

using namespace dtrain;

namespace {

constexpr int kWarmUpPairs = 2;      // not counted: page cache, first-time paths
constexpr int kPatienceMs = 60'000;  // the longest wait for one launch, on a loaded machine

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "launch_pairs: %s\n", why.c_str());
  std::exit(1);
}

// Measures one launch, from the order to the stamp; returns when no process of it is left.
double launch_once(proc::Runner& runner, const task::ShimSpec& spec, int stamps) {
  bool stamped = false, over = false;
  std::int64_t stamp = 0;
  proc::EventSink sink = [&](node::Event event) {
    if (const auto* up = std::get_if<node::ShimUp>(&event)) {
      if (!up->result) give_up(up->result.error().text());
      runner.start(spec.id, 1);
    } else if (const auto* refused = std::get_if<node::AttemptRefused>(&event)) {
      give_up(refused->error.text());
    } else if (std::holds_alternative<node::ShimGone>(event)) {
      over = true;
    }
  };
  const std::int64_t begin = now_ns();
  runner.launch(spec);
  while (!over) {
    pollfd wait[2] = {{runner.fd(), POLLIN, 0}, {stamped ? -1 : stamps, POLLIN, 0}};
    ::poll(wait, 2, 100);
    if (now_ns() - begin > kPatienceMs * 1'000'000LL) give_up("a launch takes too long");
    runner.dispatch(sink);
    char line[64];
    if (stamped || (wait[1].revents & POLLIN) == 0) continue;
    const ssize_t n = ::read(stamps, line, sizeof(line) - 1);
    if (n <= 0) continue;
    line[n] = '\0';
    stamp = std::strtoll(line, nullptr, 10);
    stamped = true;
    runner.end(spec.id);
  }
  runner.remove_files(spec.id);
  return static_cast<double>(stamp - begin) / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: launch_pairs SHIM DIRECTORY FIRST_STAMP PAIRS\n");
    return 64;
  }
  const std::string directory = argv[2], pipe = directory + "/stamps";
  if (::mkfifo(pipe.c_str(), 0666) != 0) give_up("could not make " + pipe);
  const int stamps = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  proc::RunnerOptions options;
  options.shim_path = argv[1];
  options.tasks_dir = directory + "/direct";
  auto direct = proc::make_runner(options, {proc::direct_launcher});
  options.tasks_dir = directory + "/systemd";
  auto systemd = proc::make_runner(options, {proc::systemd_launcher});
  if (!direct) give_up(direct.error().text());
  if (!systemd) give_up(systemd.error().text());
  (void)(*direct)->list();
  (void)(*systemd)->list();
  task::ShimSpec spec;
  spec.job_name = "bench";
  spec.work_dir = directory;
  spec.argv = {argv[3], pipe};
  spec.memory_bytes = 1 << 30;
  for (int pair = 0; pair < kWarmUpPairs + std::atoi(argv[4]); ++pair) {
    spec.id = {static_cast<JobId>(pair + 1), 1, {"worker", 0}};
    double ms[2];
    for (int turn = 0; turn < 2; ++turn) {
      const bool through_systemd = (turn + pair) % 2 != 0;
      ms[through_systemd] = launch_once(through_systemd ? **systemd : **direct, spec, stamps);
    }
    if (pair >= kWarmUpPairs) std::printf("%.3f %.3f\n", ms[0], ms[1]);
  }
  return 0;
}
