// dtrain-discover finds the hardware of this machine. The agent starts it for a moment, so that hwloc and the GPU
// makers' libraries, which map much memory and may hang or crash, never live in the agent. docs/agent.md
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "agent/base/small_file.h"
#include "agent/dtrain-discover/discover.h"
#include "agent/dtrain-discover/health.h"
#include "common/wire/codec.h"

namespace dtrain::discover {
namespace {

constexpr rlim_t kCpuSeconds = 60;  // ends an endless loop

constexpr const char* kUsage =
    "usage: dtrain-discover [--root DIR] [--topology FILE.xml] [--exclude GPU]... [--known 'INDEX PCI']...\n"
    "                       [--nvml LIBRARY] [--text | --health]\n"
    "Says what hardware this machine has. The agent calls it; with --text it is for people. With --health: how the\n"
    "GPUs are that --known names.\n";

template <class T>
bool write_frame(const T& answer) {
  const std::string body = wire::encode(answer);
  std::string frame;
  for (int shift = 24; shift >= 0; shift -= 8) frame += static_cast<char>((body.size() >> shift) & 0xff);
  return write_all(STDOUT_FILENO, frame + body);
}

bool write_text(const host::Machine& machine) {
  if (!machine.complete) return true;
  if (machine.error) std::fprintf(stderr, "dtrain-discover: %s\n", machine.error->text().c_str());
  for (const Error& warning : machine.warnings) std::fprintf(stderr, "dtrain-discover: %s\n", warning.text().c_str());
  return write_all(STDOUT_FILENO, machine.topology);
}

int run_program(int argc, char** argv) {
  // Ends with the agent, leaves no core file, and does not run longer than it is useful.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core{0, 0}, cpu{kCpuSeconds, kCpuSeconds};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::setrlimit(RLIMIT_CPU, &cpu);
  constexpr option kOptions[] = {{"root", required_argument, nullptr, 'r'},    {"topology", required_argument, nullptr, 't'},
                                 {"exclude", required_argument, nullptr, 'e'}, {"nvml", required_argument, nullptr, 'n'},
                                 {"known", required_argument, nullptr, 'k'},   {"text", no_argument, nullptr, 'T'},
                                 {"health", no_argument, nullptr, 'H'},        {nullptr, 0, nullptr, 0}};
  Request request;
  bool text = false, health = false;
  for (int flag; (flag = ::getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (flag) {
      case 'r': request.source.root = ::optarg; break;
      case 't': request.source.file = ::optarg; break;
      case 'e': request.exclude.emplace_back(::optarg); break;
      case 'k': {
        const auto known = host::parse_known_gpu(::optarg);
        if (!known) return std::fprintf(stderr, "%s\n", known.error().text().c_str()), EX_USAGE;
        request.known.push_back(*known);
        break;
      }
      case 'n': request.nvml = ::optarg; break;
      case 'H': health = true; break;
      case 'T': text = true; break;
      default: return std::fputs(kUsage, stderr), EX_USAGE;
    }
  }
  if (::optind < argc || (text && health)) return std::fputs(kUsage, stderr), EX_USAGE;
  // Only hwloc's own parts: none that starts OpenCL or GL, and none that binds itself to every CPU in turn.
  ::setenv("HWLOC_COMPONENTS", "-x86,-opencl,-cuda,-nvml,-rsmi,-levelzero,-gl", 1);
  ::setenv("HWLOC_HIDE_ERRORS", "2", 1);
  int code = EX_OK;
  if (health) {
    look_at_health(request.source.root, request.known, request.nvml, [&](const host::GpuSamples& samples) {
      if (!write_frame(samples)) code = EX_IOERR;
    });
    ::_exit(code);
  }
  discover(request, [&](const host::Machine& machine) {
    if (machine.error) code = EX_DATAERR;
    if (!(text ? write_text(machine) : write_frame(machine))) code = EX_IOERR;
  });
  ::_exit(code);  // a maker's library may hang in its clean-up
}

}  // namespace
}  // namespace dtrain::discover

int main(int argc, char** argv) { return dtrain::discover::run_program(argc, argv); }
