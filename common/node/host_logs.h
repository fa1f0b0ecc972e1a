// `dtrainctl logs` of tasks that are, or may come to be, on other hosts: one part at each host, merged as they come. Each
// host answers from its own disk and ends its part when, by its copy of the ledger, the job is over.
//
// Followed, a log goes on over the loss of a host: a note says that something is missing, and where the task goes on. When
// the host is back the client is disconnected: it asks again, and knows best what it has printed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/node/context.h"
#include "common/node/relays.h"
#include "common/node/streams.h"
#include "common/wire/control.h"

namespace dtrain::node {

class HostLogs {
 public:
  HostLogs(Context& context, Relays& relays, Streams& streams) : c_(context), relays_(relays), streams_(streams) {}

  // Is that for here, or are this host's own files all there is (Streams::open_log)?
  bool wanted(const wire::LogsRequest& query, const cluster::JobRecord& job) const;
  void open(ConnectionId connection, std::uint64_t request, const Caller& caller, const wire::LogsRequest& query, JobId job);

  void cancel(ConnectionId connection, std::uint64_t request);
  void closed(ConnectionId connection);
  void changed(JobId job);
  void members_changed();
  // False: no part of any of these.
  bool ended(const RelayEnded& e);

 private:
  struct Key {
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Missed {
    bool lost = false;  // its part was lost; else none could be opened
    bool told = false;
  };
  struct Log {
    JobId job = 0;
    wire::LogsRequest query;
    Caller caller;
    std::map<ConnectionId, NodeId> parts;  // open, and at which host
    std::set<NodeId> asked;                // hosts that have or had a part, or never will
    std::set<NodeId> idle;                 // that brought nothing and have no part any more: asked once a task is there; followed logs only
    std::map<NodeId, Missed> missed;       // followed logs only
    std::optional<Error> failed, refused;  // the first of each
    bool any = false;                      // a part ended well
  };
  using Logs = std::map<Key, Log>;
  struct Wanted {
    std::string task;     // one of those that are there
    bool needed = false;  // without it the answer is incomplete
  };

  std::map<NodeId, Wanted> hosts(const Log& log, const cluster::JobRecord& job) const;
  // By the tasks of now: a job that was Pending has some since.
  bool needed(const Log& log, const NodeId& host) const;
  bool goes_on(const Log& log) const;
  // Opens what is wanted by now; ends what is over. False: it is gone.
  bool advance(const Key& key, Log& log);
  void tell_missed(const Key& key, Missed& missed, const std::string& cause);
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
