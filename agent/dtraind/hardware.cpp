#include "agent/dtraind/hardware.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <optional>
#include <utility>

#include "agent/dtraind/start.h"
#include "agent/host/discover.h"
#include "agent/host/facts.h"
#include "agent/store/file.h"

namespace dtrain::daemon {
namespace {

// hwloc's own variables name another tree of /proc and /sys, or a file, for tests.
std::string variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? std::string() : value;
}

struct Found {
  host::Machine machine;
  bool elsewhere = false;  // from a file, not from this machine: its CPUs and memory count
  std::optional<host::GpuWatch::Options> watch;
};

// The numbers that earlier lives of this agent gave out. Unset: they cannot be read now and must not be overwritten.
std::optional<std::vector<host::KnownGpu>> read_known_gpus(const std::string& path, Log& log) {
  using Known = std::vector<host::KnownGpu>;
  const auto bytes = store::read_file(path, host::kKnownGpusBytes);
  if (!bytes && bytes.error().code == ErrorCode::not_found) return Known();
  if (!bytes && bytes.error().code != ErrorCode::limit) {
    log.write(LogLevel::warn, "hardware.numbers-unread",
              {{"error", bytes.error().text()},
               {"next",
                "the GPUs are numbered in order of their addresses: if one is missing, cancel the jobs that have GPUs here; mend "
                "the disk, then restart the agent"}});
    return std::nullopt;
  }
  auto known = bytes ? host::parse_known_gpus(*bytes) : Result<Known>(fail(bytes.error()));
  if (known) return std::move(*known);
  const bool aside = ::rename(path.c_str(), (path + ".damaged").c_str()) == 0;
  log.write(LogLevel::warn, "hardware.numbers-damaged",
            {{"file", aside ? path + ".damaged" : path},
             {"cause", known.error().text()},
             {"next", "the GPUs are numbered anew: if one is missing, cancel the jobs that have GPUs here"}});
  return Known();
}

void remember_gpus(const std::string& path, const std::vector<host::KnownGpu>& before, const std::vector<host::KnownGpu>& now, Log& log) {
  if (before == now) return;
  if (auto written = store::write_file_atomically(path, host::known_gpus_file(now), 0644); !written)
    log.write(LogLevel::warn, "hardware.numbers-not-kept",
              {{"error", written.error().text()},
               {"next", "when a GPU is missing after the next start the numbers of the others may change; mend the disk"}});
}

// Unset: the machine could not be discovered, which was logged.
Start<std::optional<Found>> ask(const Config& config, std::vector<host::KnownGpu> known, Log& log) {
  host::DiscoverOptions options;
  options.topology_file = config.resources.topology.empty() ? variable("HWLOC_XMLFILE") : config.resources.topology;
  options.root = options.topology_file.empty() ? variable("HWLOC_FSROOT") : "";
  options.exclude_gpus = config.resources.exclude_gpus;
  options.known_gpus = std::move(known);
  const auto program = find_helper("dtrain-discover", X_OK);
  auto machine = Result<host::Machine>(tl::unexpect, program ? Error{} : program.error().error);
  if (program) {
    options.program = *program;
    machine = host::discover(options);
  }
  if (machine) {
    Found found{std::move(*machine), !options.topology_file.empty() || !options.root.empty(), std::nullopt};
    if (options.topology_file.empty() && !found.machine.gpus.empty()) {
      found.watch = host::GpuWatch::Options{options.program, options.root, options.nvml, {}};
      for (const node::Gpu& gpu : found.machine.gpus) found.watch->gpus.push_back({gpu.index, gpu.pci});
    }
    return found;
  }
  if (!options.topology_file.empty()) {
    const ErrorCode code = machine.error().code;
    return give_up(code == ErrorCode::not_found || code == ErrorCode::io ? EX_NOINPUT
                   : code == ErrorCode::invalid                          ? EX_CONFIG
                                                                         : EX_UNAVAILABLE,
                   machine.error());
  }
  log.write(LogLevel::warn, "hardware.unknown",
            {{"warning", machine.error().message}, {"next", machine.error().next + "; until then this node offers no GPUs"}});
  return std::optional<Found>();
}

class NoLog : public Log {
  void write(LogLevel, std::string_view, std::span<const LogField>) override {}
};

}  // namespace

Start<std::optional<host::GpuWatch::Options>> gather_hardware(const Config& config, const Layout& layout, node::NodeFacts& facts,
                                                              Log& log) {
  const auto known = read_known_gpus(layout.gpus_file(), log);
  auto found = ask(config, known.value_or(std::vector<host::KnownGpu>()), log);
  if (!found) return tl::unexpected<Failure>(found.error());
  auto total = host::total_capacity();
  if (!total) return give_up(EX_OSERR, total.error());
  const auto usable = host::usable_cpus();
  if (!usable) return give_up(EX_OSERR, usable.error());
  // Another machine's CPUs have other numbers.
  const bool here = !*found || !(*found)->elsewhere;
  if (config.tasks.cpu_binding && here)
    facts.cpus = host::describe_cpus(*usable, *found ? (*found)->machine.cpu_list : std::vector<task::HostCpu>());
  if (*found) {
    host::Machine& machine = (*found)->machine;
    if ((*found)->elsewhere) *total = host::Capacity{machine.cpus * 1000, machine.memory_bytes};
    for (const Error& warning : machine.warnings)
      log.write(LogLevel::warn, "hardware.warning", {{"warning", warning.message}, {"next", warning.next}});
    if (known) remember_gpus(layout.gpus_file(), *known, machine.known, log);
    facts.gpus = std::move(machine.gpus);
    facts.topology = std::move(machine.topology);
    facts.packages = machine.packages;
    facts.numa_nodes = machine.numa_nodes;
  }
  host::ReserveOptions reserve{config.resources.reserve_cpu_millis, config.resources.reserve_memory};
  if (config.dev) {  // somebody's own machine: all of it may be used
    reserve.cpu_millis = reserve.cpu_millis.value_or(0);
    reserve.memory_bytes = reserve.memory_bytes.value_or(0);
  }
  const host::Capacity capacity = host::after_reserve(*total, reserve);
  facts.cpu_millis = capacity.cpu_millis;
  facts.memory_bytes = capacity.memory_bytes;
  if (config.resources.gpus) {
    facts.gpus = host::pretended_gpus(*config.resources.gpus);
    facts.topology += "pretended instead of its own: " + std::to_string(facts.gpus.size()) + " GPUs\n";
  }
  log.write(LogLevel::info, "hardware.found",
            {{"cpus", std::to_string(total->cpu_millis / 1000)},
             {"memory_bytes", std::to_string(total->memory_bytes)},
             {"gpus", std::to_string(facts.gpus.size())}});
  if (!*found || config.resources.gpus) return std::optional<host::GpuWatch::Options>();
  return std::move((*found)->watch);
}

Start<void> check_topology(const Config& config) {
  if (config.resources.topology.empty()) return {};
  NoLog log;
  const auto found = ask(config, {}, log);
  if (!found) return tl::unexpected<Failure>(found.error());
  return {};
}

}  // namespace dtrain::daemon
