// Requests with more than one answer: watches, event followers, and the log streams that the agent serves and that
// Node informs of new generations.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/node/context.h"
#include "common/node/part.h"
#include "common/wire/control.h"

namespace dtrain::node {

class Coordinator;

class Streams final : public Part {
 public:
  Streams(Context& context, const Coordinator& coordinator) : Part(Runs::always), c_(context), coordinator_(coordinator) {}

  // Each answers with an error if limits::kStreams are open already.
  void watch(ConnectionId connection, std::uint64_t request, const wire::WatchRequest& query, JobId job);
  void follow_events(ConnectionId connection, std::uint64_t request, const wire::EventsRequest& query, JobId job);
  void open_log(ConnectionId connection, std::uint64_t request, const wire::LogsRequest& query, JobId job);

  void cancel(ConnectionId connection, std::uint64_t request);
  void closed(ConnectionId connection) override;
  void members_changed() override { new_events(); }
  // To be called when the job changed, or when only its tasks' STATUS lines did.
  void changed(JobId job);
  void new_events();
  void tick() override;
  Instant deadline() const override;

 private:
  struct Key {
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Watch {
    JobId job = 0;
    Duration interval{0};
    Instant next{};       // not to be sent before
    bool pending = true;  // there is something to send
    // the client was sent that nothing more will happen by itself; that, and the job's removal, is sent at once
    bool over = false;
    std::uint64_t seq = 0;  // number of the newest event that was sent
  };
  struct Follower {
    JobId job = 0;  // 0: all
    std::uint64_t seq = 0;
    std::uint64_t local = 0;  // number of the newest event of this node that was sent
  };
  struct LogStream {
    JobId job = 0;
    std::string task;
    std::size_t sources = 0;
  };

  bool room(ConnectionId connection, std::uint64_t request);
  bool push(const Key& key, Watch& watch);  // true: the last answer was sent
  void send_events(const Key& key, Follower& follower, bool last);
  std::vector<AssignmentId> log_sources(const cluster::JobRecord& job, const std::string& task) const;

  Context& c_;
  const Coordinator& coordinator_;
  std::map<Key, Watch> watches_;
  std::map<Key, Follower> followers_;
  std::map<Key, LogStream> logs_;
};

}  // namespace dtrain::node
