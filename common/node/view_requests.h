// Views of jobs, tasks, nodes and the cluster, answered at once from what this node knows, with or without a coordinator.
#pragma once

#include <string>

#include "common/node/callers.h"
#include "common/node/coordinator.h"

namespace dtrain::node {

class ViewRequests {
 public:
  ViewRequests(Context& context, Callers& callers, const Coordinator& coordinator)
      : c_(context), callers_(callers), coordinator_(coordinator) {}

  void jobs(const Request& e, const wire::JobsRequest& q);
  void tasks(const Request& e, const wire::JobName& q);
  void describe(const Request& e, const wire::JobName& q, const Caller& caller);
  void status(const Request& e, const wire::JobName& q, const Caller& caller);
  void task_specs(const Request& e, const wire::TaskSpecsRequest& q, const Caller& caller);
  void nodes(const Request& e, const wire::NodeName& q);
  void version(const Request& e);
  void manifests(const Request& e);

 private:
  bool stale() const;

  Context& c_;
  Callers& callers_;
  const Coordinator& coordinator_;
};

}  // namespace dtrain::node
