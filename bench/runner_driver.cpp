// runner_driver SHIM TASKS_DIR WORK_DIR PROGRAM ARGS...: the smallest possible agent, for bench/restart.py --driver.
// Launches one assignment with the direct runner and starts the next attempt as soon as one has exited, until its
// stdin ends. So a measurement of it shows runner and shim alone, without Node and storage.
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "agent/proc/shim_runner.h"

using namespace dtrain;

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: runner_driver SHIM TASKS_DIR WORK_DIR PROGRAM ARGS...\n");
    return 64;
  }
  proc::RunnerOptions options;
  options.shim_path = argv[1];
  options.tasks_dir = argv[2];
  auto runner = proc::make_runner(options, {proc::direct_launcher});
  if (!runner) {
    std::fprintf(stderr, "%s\n", runner.error().text().c_str());
    return 69;
  }
  task::ShimSpec spec;
  spec.id = {1, 1, {"worker", 0}};
  spec.user.uid = ::geteuid();
  spec.work_dir = argv[3];
  spec.argv.assign(argv + 4, argv + argc);
  spec.env["PATH"] = "/usr/bin:/bin";
  int result = 0;
  bool over = false, ending = false;
  proc::EventSink sink = [&](node::Event event) {
    if (const auto* up = std::get_if<node::ShimUp>(&event)) {
      if (up->result) return (*runner)->start(spec.id, 1);
      std::fprintf(stderr, "%s\n", up->result.error().text().c_str());
      result = 70;
      over = true;
    } else if (const auto* exit = std::get_if<node::AttemptExited>(&event)) {
      if (!ending) (*runner)->start(spec.id, exit->attempt + 1);
    } else if (const auto* refused = std::get_if<node::AttemptRefused>(&event)) {
      std::fprintf(stderr, "%s\n", refused->error.text().c_str());
      result = 70;
      (*runner)->end(spec.id);
    } else if (std::holds_alternative<node::ShimGone>(event)) {
      over = true;
    }
  };
  (void)(*runner)->list();
  (*runner)->launch(spec);
  while (!over) {
    pollfd wait[2] = {{(*runner)->fd(), POLLIN, 0}, {ending ? -1 : STDIN_FILENO, POLLIN, 0}};
    ::poll(wait, 2, ending ? 10 : -1);
    if (!ending && wait[1].revents != 0) {
      ending = true;
      (*runner)->end(spec.id);
    }
    (*runner)->dispatch(sink);
  }
  (*runner)->remove_files(spec.id);
  return result;
}
