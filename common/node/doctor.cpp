#include "common/node/doctor.h"

#include <algorithm>

#include "common/node/host_health.h"
#include "common/node/words.h"

namespace dtrain::node {
namespace {

std::string number(std::uint64_t n) { return std::to_string(n); }
std::string counted(std::uint64_t n, const std::string& what) { return number(n) + " " + what + (n == 1 ? "" : "s"); }

std::string limit_text(const std::string& name, std::uint64_t value) {
  if (value == kUnlimited) return "unlimited";
  return name == "nofile" || name == "nproc" ? number(value) : bytes_text(value);
}

std::string span_text(const PortSpan& span) { return number(span.first) + "-" + number(span.last); }

bool is_loopback(const std::string& ip) { return ip.starts_with("127.") || ip == "::1"; }

bool has(const std::vector<std::string>& list, const std::string& item) { return std::ranges::find(list, item) != list.end(); }

// The findings about one host so far.
class Chart {
 public:
  explicit Chart(const Examination& examined) : seen(examined) {}
  void bad(const char* check, std::string finding, std::string cure) { add(check, "bad", std::move(finding), std::move(cure)); }
  void warn(const char* check, std::string finding, std::string cure) { add(check, "warn", std::move(finding), std::move(cure)); }
  // Adds an `ok` only if the check found nothing else.
  void well(const char* check, std::string finding) {
    const auto same = [&](const wire::Finding& f) { return f.check == check && f.level != "ok"; };
    if (std::ranges::none_of(findings, same)) add(check, "ok", std::move(finding), "");
  }
  void take(std::optional<wire::Finding> finding) {
    if (finding) findings.push_back(std::move(*finding));
  }

  const Examination& seen;
  Findings findings;

 private:
  void add(const char* check, const char* level, std::string finding, std::string cure) {
    findings.push_back({check, seen.terms.name, level, std::move(finding), std::move(cure)});
  }
};

// ---------------------------------------------------------------- ports

void check_ports(Chart& chart) {
  const ExamTerms& terms = chart.seen.terms;
  for (const ListenTrial& trial : chart.seen.trials) {
    if (!trial.error) continue;
    if (trial.agent_has_it)
      chart.warn("ports", "an agent has port " + number(trial.port) + " (" + trial.what + "), but not the control socket that was asked",
                 "give its socket with --agent PATH: control.sock in the directory of its --run-dir");
    else chart.bad("ports", trial.error->message + " (" + trial.what + ")", trial.error->next);
  }
  if (terms.listen_ip.empty()) return chart.well("ports", "this agent talks to no other host (--dev)");
  const PortSpan own{terms.port, static_cast<std::uint16_t>(terms.port + 1)};
  const PortSpan& local = chart.seen.local_ports;
  const auto reserved = [&](std::uint16_t port) {
    return std::ranges::any_of(chart.seen.reserved_ports, [&](const PortSpan& r) { return r.first <= port && port <= r.last; });
  };
  if (local.first != 0 && own.first <= local.last && own.last >= local.first && !(reserved(own.first) && reserved(own.last)))
    chart.warn("ports",
               "the agent's ports " + span_text(own) + " lie in " + span_text(local) +
                   ", from which the kernel picks the ports of connections: one may have them when the agent is started again",
               "set network.listen to a port outside of it, on all hosts, or reserve them: sysctl -w "
               "net.ipv4.ip_local_reserved_ports=" +
                   span_text(own));
  if (!terms.keyed && !terms.join.empty())
    chart.warn("ports", "there is no cluster key: an agent has one of its own then, and neither joins others nor is joined",
               "dtrainctl keygen /etc/dtrain/cluster.key on one host, copy the file to all, restart the agents");
  const std::string where = terms.listen_ip + ", ports " + number(own.first) + " (gossip) and " + number(own.last) + " (bulk)";
  chart.well("ports", terms.agent ? "the agent listens on " + where : "free for an agent: " + where);
}

void check_task_ports(Chart& chart) {
  const ExamTerms& terms = chart.seen.terms;
  chart.take(task_ports_overlap(terms.task_ports, chart.seen.local_ports, chart.seen.reserved_ports, terms.name));
  const auto& strangers = chart.seen.strangers;
  std::vector<std::string> named;
  for (std::size_t i = 0; i < std::min(strangers.size(), kStrangersSaid); ++i)
    named.push_back(number(strangers[i].port) + (strangers[i].owner.empty() ? "" : " by " + strangers[i].owner));
  if (strangers.size() > named.size()) named.push_back(counted(strangers.size() - named.size(), "further one"));
  // Only the agent knows which processes are tasks, and tasks outlive the agent.
  if (!strangers.empty() && !terms.agent)
    chart.warn("task-ports", "in use: " + joined(named) + "; these may be tasks that run on without their agent",
               "leave them alone, start the agent and ask again: it names those that are none");
  else if (!strangers.empty())
    chart.warn("task-ports", "taken by programs that are no tasks: " + joined(named) + "; a task that is given such a port goes elsewhere",
               "end those programs or give them other ports, or set network.taskPorts to a range that nobody uses");
  chart.well("task-ports", span_text(terms.task_ports) + " are for tasks alone");
}

// ---------------------------------------------------------------- names and addresses

void check_names(Chart& chart) {
  const ExamTerms& terms = chart.seen.terms;
  std::vector<std::string> unknown, late;
  for (const Lookup& look : chart.seen.lookups) {
    if (look.of == Lookup::Of::peer) continue;  // judged together with the peer's own answer
    if (!look.answered) {
      late.push_back(look.name);
      continue;
    }
    if (look.of == Lookup::Of::join) {
      if (look.addresses.empty()) unknown.push_back(look.name);
      continue;
    }
    const bool all_loopback = !look.addresses.empty() && std::ranges::all_of(look.addresses, is_loopback);
    if (look.addresses.empty())
      chart.warn("names", "this host's own name " + look.name + " is not known to its resolver: programs that look it up (Gloo, MPI) fail",
                 "add a line to /etc/hosts: " + (terms.advertise.empty() ? "ADDRESS" : terms.advertise) + " " + look.name);
    else if (all_loopback && !terms.advertise.empty() && !is_loopback(terms.advertise))
      chart.warn("names",
                 "this host's own name " + look.name + " means " + joined(look.addresses) +
                     " here: programs that look it up (Gloo, MPI) listen where no other host reaches them",
                 "in /etc/hosts write " + terms.advertise + " " + look.name + " in place of it");
  }
  if (!unknown.empty())
    chart.warn("names", "network.join has names that the resolver here does not know: " + joined(unknown),
               "add them to /etc/hosts or to the name server, correct network.join, or write addresses there");
  if (!late.empty())
    chart.warn("names", "the resolver did not answer in time for " + joined(late),
               "see /etc/resolv.conf, and whether the name servers in it answer");
  chart.well("names", counted(chart.seen.lookups.size(), "name") + " looked up");
}

void check_addresses(Chart& chart) {
  const ExamTerms& terms = chart.seen.terms;
  if (!terms.advertise.empty() && chart.seen.advertise_interface.empty())
    chart.warn("addresses", "no interface here has the advertised address " + terms.advertise,
               "right behind address translation only, where others' connections to it reach this host; else mend network.advertise");
  if (!terms.task_address.empty()) chart.take(task_address_unknown(terms.task_address, chart.seen.task_interface, terms.name));
  if (terms.advertise.empty()) return chart.well("addresses", "the agent chooses what it advertises when it starts");
  const auto on = [](const std::string& ip, const std::string& interface) {
    return ip + (interface.empty() ? "" : " (" + interface + ")");
  };
  chart.well("addresses", "advertised " + on(terms.advertise, chart.seen.advertise_interface) + ", tasks use " +
                              on(terms.task_address, chart.seen.task_interface));
}

// ---------------------------------------------------------------- the machine

void check_clock(Chart& chart) {
  if (chart.seen.clock_synchronised == false)
    chart.warn("clock", "nothing keeps this host's clock right: the kernel says that it is not synchronised",
               "run a time service: systemctl enable --now systemd-timesyncd, or chrony");
  chart.well("clock", chart.seen.clock_synchronised ? "synchronised" : "the kernel does not say whether it is synchronised");
}

void check_limits(Chart& chart) {
  for (wire::Finding& finding : limits_too_low(chart.seen.limits, chart.seen.terms.name)) chart.take(std::move(finding));
  std::vector<std::string> got;
  for (const TaskLimit& limit : chart.seen.limits) got.push_back(limit.name + " " + limit_text(limit.name, limit.wanted));
  chart.well("limits", "tasks get " + joined(got));
}

void check_cgroups(Chart& chart) {
  const Examination& seen = chart.seen;
  if (!seen.cgroup2) {
    chart.bad("cgroups", "there is no cgroup v2: a task can neither be frozen nor ended as a whole",
              "mount it (mount -t cgroup2 none /sys/fs/cgroup/unified), or boot with systemd.unified_cgroup_hierarchy=1");
  } else if (!seen.root && seen.terms.agent) {
    chart.warn("cgroups", "the agent does not run as root: limits of memory have effect only where its control group was delegated to it",
               "run dtraind as root; the packaged service does");
  } else {
    std::vector<std::string> without;
    for (const char* controller : {"memory", "pids"})
      if (!has(*seen.cgroup2, controller) && !has(seen.cgroup1, controller)) without.emplace_back(controller);
    if (!without.empty())
      chart.warn("cgroups", "the kernel has no controller for " + joined(without) + ": such limits of tasks have no effect",
                 "boot with cgroup_enable=" + joined(without) + ", or with a kernel that has it");
  }
  if (!seen.cgroup2) return;
  chart.well("cgroups", seen.cgroup1.empty() ? "v2, with " + joined(*seen.cgroup2)
                                             : "v2 to freeze and end tasks, v1 for limits (" + joined(seen.cgroup1) + ")");
}

// ---------------------------------------------------------------- GPUs

void check_nvidia(Chart& chart) {
  const Driver& driver = chart.seen.nvidia;
  if (driver.devices == 0 && driver.module.empty()) return;
  const std::string devices = counted(driver.devices, "NVIDIA GPU");
  if (driver.module.empty()) {
    chart.bad("gpus", devices + ", and no NVIDIA driver is loaded" + (driver.other_driver ? ": nouveau has them" : ""),
              driver.other_driver ? "install the NVIDIA driver (it keeps nouveau away), then reboot"
                                  : "install the NVIDIA driver, or load it: modprobe nvidia; dmesg says why it does not load");
    return;
  }
  if (!driver.library_found)
    chart.bad("gpus",
              "the NVIDIA driver " + driver.module + " is loaded, and its library libcuda.so.1 is not installed: no program can use GPUs",
              "install the package of the same version that has libcuda.so.1");
  else if (!driver.library.empty() && driver.library != driver.module)
    chart.bad("gpus",
              "the NVIDIA driver in the kernel is " + driver.module + ", libcuda.so.1 is " + driver.library +
                  ": CUDA fails with a driver/library version mismatch",
              "reboot after an upgrade of the driver, or reload its modules: modprobe -r nvidia_uvm nvidia, then modprobe nvidia");
  if (!driver.missing.empty())
    chart.warn("gpus", "device nodes of NVIDIA are missing: " + joined(driver.missing),
               "nvidia-modprobe -u -c 0 makes them; at each boot: systemctl enable --now nvidia-persistenced");
}

void check_gpus(Chart& chart) {
  check_nvidia(chart);
  const Driver& amd = chart.seen.amd;
  if (amd.devices != 0 && (amd.module.empty() || !amd.missing.empty()))
    chart.warn("gpus",
               counted(amd.devices, "AMD GPU") + ", and " +
                   (amd.module.empty() ? "amdgpu is not loaded" : joined(amd.missing) + " is missing") + ": ROCm cannot use them",
               "install the amdgpu driver, or load it: modprobe amdgpu; dmesg says why it does not load");
  std::size_t healthy = 0;
  for (const Gpu& gpu : chart.seen.terms.gpus) {
    if (gpu.healthy) {
      ++healthy;
      continue;
    }
    chart.bad("gpus",
              "GPU " + number(gpu.index) + " at " + gpu.pci + " (" + gpu.model + ") cannot be used and is not given to tasks" +
                  (gpu.reason.empty() ? "" : ": " + gpu.reason),
              "dmesg | grep -i -e xid -e nvrm -e amdgpu says why; mend its driver, reset or replace it, then restart the agent");
  }
  const auto& gpus = chart.seen.terms.gpus;
  if (!gpus.empty() && gpus.front().pretended)
    chart.warn("gpus", counted(gpus.size(), "GPU") + " of this node are pretended (resources.gpus)",
               "right for trying out only: remove the key");
  chart.well("gpus", gpus.empty() ? "none" : counted(healthy, "GPU") + ", all usable");
}

// ---------------------------------------------------------------- disk

void check_disks(Chart& chart) {
  const ExamTerms& terms = chart.seen.terms;
  std::vector<std::string> good;
  for (const Disk& disk : chart.seen.disks) {
    const std::string name = disk.what + " (" + disk.path + ")";
    if (!disk.error.empty()) {
      chart.bad("disk", name + " cannot be looked at: " + disk.error, "see whether its file system is mounted and answers");
      continue;
    }
    if (disk.read_only) {
      chart.bad("disk", name + " is mounted read-only: nothing can be written",
                "dmesg says whether its disk failed; mend the file system, then mount -o remount,rw");
      continue;
    }
    const std::uint64_t needed = terms.min_free_bytes != 0 ? terms.min_free_bytes : disk.total / 100 * terms.min_free_percent;
    const std::string space = name + " has " + bytes_text(disk.free) + " free of " + bytes_text(disk.total);
    const char* cure = "remove what is not needed (du -xsh there), give it a larger file system, or lower storage.minFree";
    if (disk.free < needed)
      chart.bad("disk", space + ", less than storage.minFree (" + bytes_text(needed) + "): packages and copies of checkpoints are refused",
                cure);
    else if (disk.free < needed * kDiskWarnTimes)
      chart.warn("disk", space + "; below " + bytes_text(needed) + " (storage.minFree) packages and copies of checkpoints are refused",
                 cure);
    if (disk.inodes != 0 && disk.inodes_free < disk.inodes / 100 * kInodesPercent)
      chart.bad("disk", name + " has " + number(disk.inodes_free) + " of " + number(disk.inodes) + " inodes left: soon no file can be made",
                "remove many small files, or make the file system anew with more inodes");
    if (disk.in_memory && disk.what == "paths.data")
      chart.warn("disk", name + " lies in memory: after a power cut this host has forgotten its cluster and its tasks",
                 "set paths.data to a directory on a disk");
    if (disk.no_exec && disk.what == "paths.work")
      chart.warn("disk", name + " is mounted noexec: programs of packages and environments cannot be started there",
                 "mount it with exec, or set paths.work to another file system");
    good.push_back(disk.path + " " + bytes_text(disk.free) + " free");
  }
  chart.well("disk", joined(good));
}

// ---------------------------------------------------------------- the administrator's health check

void check_health(Chart& chart) {
  const ExamTerms& terms = chart.seen.terms;
  if (terms.unchecked)
    chart.warn("health", "no new tasks are placed here: " + terms.unfit, "wait for it: healthCheck.timeout says for how long at most");
  else if (!terms.unfit.empty())
    chart.bad("health", "no new tasks are placed here: " + terms.unfit,
              "mend what it complains of; the host is given tasks again as soon as that is over");
  chart.well("health", !terms.health_check ? "there is no health check (healthCheck.command)"
                       : terms.agent       ? "the health check passes"
                                           : "the health check is run by the agent alone");
}

}  // namespace

Findings examine_host(const Examination& seen) {
  Chart chart(seen);
  for (const auto check : {check_ports, check_task_ports, check_names, check_addresses, check_clock, check_limits, check_cgroups,
                           check_gpus, check_disks, check_health})
    check(chart);
  return std::move(chart.findings);
}

std::optional<wire::Finding> task_ports_overlap(const PortSpan& task_ports, const PortSpan& local, const std::vector<PortSpan>& reserved,
                                                const std::string& node) {
  if (local.first == 0 || task_ports.first > local.last || task_ports.last < local.first) return std::nullopt;
  // The first port that the kernel may pick: in the overlap, after reserved ones.
  std::uint32_t open = std::max(task_ports.first, local.first);
  const std::uint32_t last = std::min(task_ports.last, local.last);
  for (bool moved = true; moved && open <= last;) {
    moved = false;
    for (const PortSpan& r : reserved)
      if (r.first <= open && open <= r.last) open = r.last + 1u, moved = true;
  }
  if (open > last) return std::nullopt;
  return wire::Finding{
      "task-ports", node, "warn",
      "the task ports " + span_text(task_ports) + " overlap " + span_text(local) +
          ", from which the kernel picks the ports of connections, so that a task may find its port taken",
      "set network.taskPorts outside of it, or reserve them: sysctl -w net.ipv4.ip_local_reserved_ports=" + span_text(task_ports)};
}

Findings limits_too_low(const std::vector<TaskLimit>& limits, const std::string& node) {
  Findings findings;
  for (const TaskLimit& limit : limits) {
    if (limit.most >= limit.wanted) continue;
    const std::string wanted = limit_text(limit.name, limit.wanted);
    std::string finding = "tasks are to get ulimit " + limit.name + " " + wanted + ", and get " + limit_text(limit.name, limit.most);
    std::string cure = "raise the agent's own limit, or lower tasks.ulimits." + limit.name;
    if (limit.name == "memlock") {
      finding += ": RDMA (InfiniBand, RoCE) fails, as it must lock memory";
      cure =
          "in the unit of the agent set LimitMEMLOCK=infinity (systemctl edit dtraind) and restart it; without systemd start dtraind as "
          "root; in a container give it CAP_SYS_RESOURCE, or this limit";
    } else if (limit.name == "nofile") {
      cure = "in the unit of the agent set LimitNOFILE=" + wanted + " and raise fs.nr_open (sysctl) to it, or lower tasks.ulimits.nofile";
    }
    findings.push_back({"limits", node, "warn", std::move(finding), std::move(cure)});
  }
  return findings;
}

std::optional<wire::Finding> task_address_unknown(const std::string& address, const std::string& interface, const std::string& node) {
  if (!interface.empty()) return std::nullopt;
  return wire::Finding{"addresses", node, "warn",
                       "no interface here has the task address " + address +
                           ": GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME stay unset, and Gloo and NCCL choose an interface themselves",
                       "set network.taskAddress to an address or an interface of this host (ip address shows them), restart the agent"};
}

}  // namespace dtrain::node
