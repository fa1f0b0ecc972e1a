// Whether this host is given new tasks: collects the reasons against it, from its health check, its disks and the other parts
// (Part::unfit), and which of its GPUs are sick. Reports when the host or a GPU falls sick or is well again, and names a GPU's fault as
// the cause of a task's end.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/node/context.h"
#include "common/node/coordinator.h"
#include "common/node/disk_room.h"
#include "common/node/gpu_health.h"
#include "common/node/host_health.h"
#include "common/node/part.h"

namespace dtrain::node {

inline constexpr Duration kFaultExplains = 30s;  // a fault of a GPU explains the end of a task for so long

class HostFitness final : public Part {
 public:
  // `parts`: those that may have a reason.
  HostFitness(Context& context, Coordinator& coordinator, const std::vector<Part*>& parts)
      : Part(Runs::always), c_(context), coordinator_(coordinator), parts_(parts), disk_room_(context.options.keep_free) {}

  void start() { failed_check_ = c_.facts.unfit; }
  void sampled(const GpusSampled& e);
  void faulted(const GpuFaulted& e);
  void checked(const HostChecked& e);
  void looked(const DiskLooked& e);
  void no_health_check();  // none is configured any more
  void report_sick(const std::string& reason);
  // The exit, with a recent fault of the task's GPUs as its cause if nothing else explains it.
  task::Exit explained(const AttemptExited& e) const;
  void drive() override;  // after the parts that may have a reason

 private:
  void changed(const GpuHealth::Change& change);

  Context& c_;
  Coordinator& coordinator_;
  const std::vector<Part*>& parts_;
  GpuHealth gpu_health_;
  HostHealth host_health_;
  DiskRoom disk_room_;
  std::string failed_check_;         // why the health check alone finds the host unfit; "": it is fit
  bool told_sick_ = false;           // host.sick was reported, and host.well was not since
  std::set<std::string> fell_sick_;  // PCI addresses of this host's GPUs that fell sick since the start
  // newest fault of each of this host's GPUs, by PCI address
  std::map<std::string, std::pair<Instant, std::string>> faults_;
};

}  // namespace dtrain::node
