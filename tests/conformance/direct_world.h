// This very host as a RunnerWorld: real shims, real processes. With the direct launcher it works as root and as anybody else, with and
// without cgroups. Leaves nothing behind, also after a failed case.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/base/boot_clock.h"
#include "agent/base/small_file.h"
#include "agent/proc/record.h"
#include "agent/proc/shim_runner.h"
#include "tests/conformance/runner_suite.h"
#include "tests/support/beside.h"

namespace dtrain::conformance {

inline constexpr Duration kRealBound = 60s;  // far beyond what any condition needs on a loaded machine

class DirectWorld : public RunnerWorld {
 public:
  struct Options {
    bool systemd = false;                       // its PID 1 launches the shims
    std::vector<proc::MakeLauncher> launchers;  // others than that; empty: none
    bool cgroups = true;
    bool long_path = false;  // of the tasks directory: beyond what a socket address holds
    std::uint64_t log_file_bytes = 64ull << 20;
    std::uint32_t log_files = 8;
    std::map<std::string, std::uint64_t> ulimits;
    std::vector<std::string> devices;
  };
  static constexpr char kMark[] = "DTRAIN_TEST_MARK";

  DirectWorld() : DirectWorld(Options{}) {}
  explicit DirectWorld(Options options) : options_(std::move(options)) {
    char name[] = "/tmp/dtrain-test-XXXXXX";
    root_ = ::mkdtemp(name);
    std::filesystem::permissions(root_, std::filesystem::perms(0755));
    tasks_ = root_ + "/tasks";
    if (options_.long_path) tasks_ = root_ + "/" + std::string(120, 'x') + "/tasks";
    work_ = root_ + "/work";
    std::filesystem::create_directories(work_);
    agent_returns();
  }
  ~DirectWorld() override {
    runner_.reset();
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(tasks_, ignored))
      if (const auto state = proc::read_record(entry.path(), "state")) kill_and_reap(state->fixed.shim_pid);
    for (const std::int32_t pid : marked("")) ::kill(pid, SIGKILL);
    agent_returns();
    (void)runner_->list();  // buries what is dead, cgroups included
    runner_.reset();
    std::filesystem::remove_all(root_, ignored);
  }

  proc::Runner& runner() override { return *runner_; }

  bool pump(proc::EventSink& sink, const std::function<bool()>& condition) override {
    const Instant end = boot_now() + kRealBound;
    while (true) {
      if (runner_) runner_->dispatch(sink);
      if (condition()) return true;
      if (boot_now() > end) return false;
      pollfd wait{runner_ ? runner_->fd() : -1, POLLIN, 0};
      ::poll(&wait, 1, 5);  // some conditions are about processes, which announce nothing here
    }
  }

  task::ShimSpec spec(const AssignmentId& id, const Behaviour& behaviour) override {
    task::ShimSpec spec = command(id, {});
    if (behaviour.kind == Behaviour::missing_program) {
      spec.argv = {"dtrain-no-such-program"};
    } else if (behaviour.kind == Behaviour::exits) {
      spec.argv = {"sh", "-c", "echo \"$0\" >&2; exit " + std::to_string(behaviour.code), behaviour.says};
    } else if (!behaviour.ready && behaviour.status.empty() && !behaviour.ignores_term && !behaviour.leaves_children) {
      spec.argv = {"sleep", "1000000"};
    } else {
      spec.argv = {"python3", "-SEc", script(behaviour)};
    }
    return spec;
  }

  // Any command, with the environment and user that the cases use.
  task::ShimSpec command(const AssignmentId& id, std::vector<std::string> argv) const {
    task::ShimSpec spec;
    spec.id = id;
    spec.job_name = "test";
    spec.user.uid = ::geteuid();
    spec.argv = std::move(argv);
    spec.env = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}, {kMark, root_ + "/" + id.text()}};
    spec.work_dir = work_;
    return spec;
  }

  void agent_dies() override { runner_.reset(); }
  void agent_returns() override {
    proc::RunnerOptions options;
    options.tasks_dir = tasks_;
    options.shim_path = test::beside("dtrain-shim");
    options.warm_path = test::beside("dtrain-warm.py");
    options.warn = [this](const Error& error) { warnings_.push_back(error); };
    options.log_file_bytes = options_.log_file_bytes;
    options.log_files = options_.log_files;
    options.ulimits = options_.ulimits;
    options.devices = options_.devices;
    if (!options_.cgroups) options.cgroup = "/no-such-cgroup";  // do without
    auto launchers = options_.launchers;
    if (launchers.empty()) launchers = {options_.systemd ? proc::systemd_launcher : proc::direct_launcher};
    auto made = proc::make_runner(options, launchers);
    if (!made) throw std::runtime_error(made.error().text());
    runner_ = std::move(*made);
  }
  void shim_dies(const AssignmentId& id) override { signal_shim(id, SIGKILL); }
  void shim_stops(const AssignmentId& id) override { signal_shim(id, SIGSTOP); }
  void shim_continues(const AssignmentId& id) override { signal_shim(id, SIGCONT); }
  void process_dies(const AssignmentId&, std::int32_t pid) override { ::kill(pid, SIGKILL); }
  int children() const override { return 2; }
  int processes(const AssignmentId& id) override { return static_cast<int>(marked(id.text()).size()); }
  int running_processes(const AssignmentId& id) override {
    int running = 0;
    for (const std::int32_t pid : marked(id.text())) running += is_stopped(pid) ? 0 : 1;
    return running;
  }

  std::string directory(const AssignmentId& id) const { return tasks_ + "/" + id.text(); }
  const std::string& root() const { return root_; }
  const std::string& tasks() const { return tasks_; }
  const std::string& work() const { return work_; }
  const std::vector<Error>& warnings() const { return warnings_; }  // of all agents so far

  // Living processes whose environment carries the mark of that assignment; "": of any in this world.
  std::vector<std::int32_t> marked(const std::string& assignment) const {
    const std::string wanted =
        std::string(1, '\0') + kMark + "=" + root_ + "/" + (assignment.empty() ? "" : assignment + std::string(1, '\0'));
    std::vector<std::int32_t> found;
    std::error_code error;
    for (std::filesystem::directory_iterator i("/proc", error), end; !error && i != end; i.increment(error)) {
      const int pid = std::atoi(i->path().filename().c_str());
      if (pid <= 0 || pid == ::getpid()) continue;
      const auto text = read_small_file(i->path().string() + "/environ");
      if (text && (std::string(1, '\0') + *text).find(wanted) != std::string::npos) found.push_back(pid);
    }
    return found;
  }

 private:
  static std::string script(const Behaviour& behaviour) {
    std::ostringstream text;
    text << "import os,signal,socket,sys,time\n";
    if (behaviour.ignores_term) text << "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n";
    if (behaviour.leaves_children)
      text << "for session in (False, True):\n"
              "  if os.fork() == 0:\n"
              "    if session:\n"
              "      os.setsid()\n"
              "      if os.fork() != 0: os._exit(0)\n"
              "    os.execvp('sleep', ['sleep', '1000000'])\n";
    text << "def say(text):\n"
            "  name = os.environ['NOTIFY_SOCKET']\n"
            "  if name[0] == '@': name = '\\0' + name[1:]\n"
            "  socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(text.encode(), name)\n";
    if (behaviour.ready) text << "say('READY=1')\n";
    if (!behaviour.status.empty()) text << "say('STATUS=" << behaviour.status << "')\n";
    text << "while True: signal.pause()\n";
    return text.str();
  }

  void signal_shim(const AssignmentId& id, int signal) const {
    if (const auto state = proc::read_record(directory(id), "state")) ::kill(state->fixed.shim_pid, signal);
  }

  static bool is_stopped(std::int32_t pid) {
    const std::string process = "/proc/" + std::to_string(pid);
    const std::string stat = read_small_file(process + "/stat").value_or("");
    const std::size_t name_end = stat.rfind(')');
    if (name_end != std::string::npos && stat.size() > name_end + 2 && stat[name_end + 2] == 'T') return true;
    std::istringstream lines(read_small_file(process + "/cgroup").value_or(""));
    for (std::string line; std::getline(lines, line);) {
      if (line.compare(0, 3, "0::") != 0) continue;
      for (const char* mount : {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"})
        if (const auto events = read_small_file(mount + line.substr(3) + "/cgroup.events"))
          return events->find("frozen 1") != std::string::npos;
    }
    return false;
  }

  // The shims are children of this process, unless systemd has launched them.
  static void kill_and_reap(std::int32_t pid) {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }

  Options options_;
  std::string root_, tasks_, work_;
  std::vector<Error> warnings_;
  std::unique_ptr<proc::Runner> runner_;
};

}  // namespace dtrain::conformance
