// Requests with more than one answer: watch, events, logs and exec. Requests about tasks are served here, passed on to the task's host,
// or served to a client of another agent.
#pragma once

#include <string>

#include "common/node/callers.h"
#include "common/node/host_logs.h"
#include "common/node/relays.h"
#include "common/node/streams.h"

namespace dtrain::node {

class StreamRequests {
 public:
  StreamRequests(Context& context, Callers& callers, Streams& streams, HostLogs& host_logs, Relays& relays)
      : c_(context), callers_(callers), streams_(streams), host_logs_(host_logs), relays_(relays) {}

  void watch(const Request& e, const wire::WatchRequest& q);
  void events(const Request& e, const wire::EventsRequest& q);
  void logs(const Request& e, const wire::LogsRequest& q, const Caller& caller);
  void exec(const Request& e, const wire::ExecRequest& q, const Caller& caller);
  // What a task's own processes ask: a program in another task of their job, which becomes a part of that task.
  void launch(const Request& e, const wire::ExecRequest& q, const Caller& caller);
  void cancel(const Request& e, const wire::CancelRequest& q);

 private:
  // Refuses a request about a task that runs or ran on another node, whose agent has its log. Returns false if the
  // task is here.
  bool refuse_for_host(const Request& e, const std::string& could_not, const NodeId& node);
  // Of exec and launch, once it is known that the caller may.
  void run(const Request& e, const wire::ExecRequest& q, const Caller& caller, const cluster::JobRecord& job, wire::MessageType verb);

  Context& c_;
  Callers& callers_;
  Streams& streams_;
  HostLogs& host_logs_;
  Relays& relays_;
};

}  // namespace dtrain::node
