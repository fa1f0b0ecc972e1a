// Answers `dtrainctl logs` for tasks that are, or may come to be, on other hosts: opens one part at each host and
// merges the parts in order of arrival. Each host answers from its own disk and ends its part when the job is over,
// by its copy of the ledger.
//
// A followed log survives the loss of a host: a note says what is missing and where the task continues. When the host
// is back the client is disconnected, so that it asks again; only the client knows what it has printed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/node/context.h"
#include "common/node/part.h"
#include "common/node/relays.h"
#include "common/node/streams.h"
#include "common/wire/control.h"

namespace dtrain::node {

class HostLogs final : public Part {
 public:
  HostLogs(Context& context, Relays& relays, Streams& streams) : Part(Runs::always), c_(context), relays_(relays), streams_(streams) {}

  // True if this class is needed; false if this host's own files are all there is (Streams::open_log).
  bool wanted(const wire::LogsRequest& query, const cluster::JobRecord& job) const;
  void open(ConnectionId connection, std::uint64_t request, const Caller& caller, const wire::LogsRequest& query, JobId job);

  void cancel(ConnectionId connection, std::uint64_t request);
  void closed(ConnectionId connection) override;
  void changed(JobId job);
  void members_changed() override;
  void relay_ended(const RelayEnded& e) override;

 private:
  struct Key {
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Missed {
    bool lost = false;  // its part was lost; false: none could be opened
    bool told = false;
  };
  struct Log {
    JobId job = 0;
    wire::LogsRequest query;
    Caller caller;
    std::map<ConnectionId, NodeId> parts;  // open parts, each with its host
    std::set<NodeId> asked;                // hosts that have or had a part, or are not to get one
    // followed logs only: hosts whose part brought nothing and ended; asked again once a task is there
    std::set<NodeId> idle;
    std::map<NodeId, Missed> missed;       // followed logs only
    std::optional<Error> failed, refused;  // the first error of each kind
    bool any = false;                      // a part ended without an error
  };
  using Logs = std::map<Key, Log>;
  struct Wanted {
    std::string task;     // one of the tasks there
    bool needed = false;  // without that host the answer is incomplete
  };

  std::map<NodeId, Wanted> hosts(const Log& log, const cluster::JobRecord& job) const;
  // By the job's tasks at this moment: a job that was Pending may have got tasks since.
  bool needed(const Log& log, const NodeId& host) const;
  bool goes_on(const Log& log) const;
  // Opens the parts that are wanted and ends those that are over. Returns false if the log itself is gone.
  bool advance(const Key& key, Log& log);
  void report_missed(const Key& key, Missed& missed, const std::string& cause);
  void refuse(Log& log, const NodeId& host, const Error& error);
  void lose(const Key& key, Log& log, const NodeId& host, const Error& cause);
  void end(const Key& key, const Log& log);
  void close_parts(const Log& log);
  void note(const Key& key, std::string text);
  void drop(Logs::iterator log);

  Context& c_;
  Relays& relays_;
  Streams& streams_;
  Logs logs_;
};

}  // namespace dtrain::node
