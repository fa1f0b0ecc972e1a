// The daemon: connects the adapters with the decider. Events go in and effects come out, all on one thread; only the
// disk worker is another.
//
// One turn: wait for the earliest deadline or a descriptor; each ready adapter puts its events into the queue; each
// event is decided at once and its effects are performed in order, so that an exit is answered by a start in the same
// turn, before anything waits for a disk. The commits of a turn go to the disk worker together at its end.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/dtraind/blob_streams.h"
#include "agent/dtraind/checkpoint_streams.h"
#include "agent/dtraind/config.h"
#include "agent/dtraind/decider.h"
#include "agent/dtraind/exit_code.h"
#include "agent/dtraind/founders.h"
#include "agent/dtraind/housekeeping.h"
#include "agent/dtraind/log_sink.h"
#include "agent/dtraind/relay_streams.h"
#include "agent/dtraind/sinks.h"
#include "agent/dtraind/start.h"
#include "agent/host/examiner.h"
#include "agent/host/resolver.h"
#include "agent/loop/loop.h"
#include "agent/loop/service_manager.h"
#include "agent/loop/signals.h"
#include "agent/net/client_door.h"
#include "agent/net/control_server.h"
#include "agent/net/peer_links.h"
#include "agent/proc/device_gate.h"
#include "agent/proc/exec_session.h"
#include "agent/proc/gpu_holders.h"
#include "agent/proc/health_check.h"
#include "agent/proc/hook_runner.h"
#include "agent/proc/log_streams.h"
#include "agent/proc/runner.h"
#include "agent/proc/staging.h"
#include "agent/store/checkpoint_store.h"
#include "agent/store/committer.h"
#include "agent/store/disk_worker.h"

namespace dtrain::daemon {

inline constexpr std::size_t kDecisionsPerTurn = 4096;     // events decided before descriptors are looked at again
inline constexpr std::size_t kUploadQueueBytes = 4 << 20;  // unwritten bytes of one upload; beyond, it is not read
inline constexpr Duration kDoorRetry = 1s;                 // pause before listening for clients again where the port is taken
inline constexpr Duration kStopPatience = 5s;              // for last commits and replies at SIGTERM
// Time for the last messages to other agents at SIGTERM: ZeroMQ's I/O threads write them, and ZeroMQ does not say
// when they did.
inline constexpr Duration kGoodbye = 200ms;

inline constexpr Duration kLogLookEvery = 10min;

// The advice about running tasks in the agent's last log line: other hosts do not wait for ever for tasks under a lease.
std::string advice_at_stop(const Config& config, const std::string& node, bool among_others);

class Daemon : private net::ControlSink, private RelayWorld {
 public:
  using MakeDecider = std::function<std::unique_ptr<Decider>(Log& log)>;

  static Start<std::unique_ptr<Daemon>> create(Config config, Prepared prepared, std::unique_ptr<proc::Runner> runner,
                                               const MakeDecider& make_decider, LogSink& log, std::string version);
  ~Daemon() override;

  // On SIGHUP: reads the configuration again; on failure the old one stays in force.
  using Reload = std::function<Result<LoadedConfig>()>;

  // Adopts the tasks, opens the control socket and works until SIGTERM or SIGINT. Returns the exit code. `manager` is
  // told that the agent is ready once it answers, and gets its signs of life only from turns of the loop, so that a
  // stuck loop sends none.
  int run(loop::Signals& signals, const Reload& reload, loop::ServiceManager& manager);
  // After run(): true if nothing of this node runs any more (--dev then removes its state).
  bool all_tasks_gone() const { return shims_.empty(); }

 private:
  // A part of the agent that waits for a descriptor or a deadline.
  struct Source {
    std::function<Instant()> deadline;
    std::function<void()> dispatch;
  };

  Daemon(Config config, Prepared prepared, LogSink& log, std::string version);
  Start<void> open_adapters(std::unique_ptr<proc::Runner> runner);
  proc::Cgroups hook_groups();
  Status add_source(int fd, std::function<Instant()> deadline, std::function<void()> dispatch);

  // ---- daemon.cpp
  Status watch_gpus();
  Status watch_health();
  void configure_health_check();
  void remove_old_logs();
  Status adopt();
  Status open_control();
  Status turn(Instant limit);
  void queue(node::Event event);
  void drain();
  void handle_signals(loop::Signals& signals, const Reload& reload);
  void reload_config(const Reload& reload, std::uint32_t uid);  // uid: of who sent the signal
  int stop(loop::ServiceManager& manager);
  int fail_storage();
  void log_ready();
  std::string how_to_end_tasks() const;

  // ---- effects.cpp
  struct Perform;
  void perform(node::Effect& effect);
  void write_blob(node::WriteBlob chunk);
  void drop_blob(node::ConnectionId connection);
  void write_checkpoint(node::WriteCheckpoint piece);
  void find_blob(const std::string& digest);
  void open_exec(const node::OpenExec& effect);
  void post_bulk(store::DiskWorker::Work work);
  void post_deferred();
  void examine(node::Examine effect);
  void find_gpu_holders(node::FindGpuHolders effect);
  void look_for_holders(std::uint64_t token, const std::shared_ptr<proc::GpuHolderSearch>& search);
  void note(const node::Event& event);

  // ---- peers.cpp
  Status open_network();
  void resolve_seeds();
  void seeds_resolved(std::vector<host::Endpoint> found);
  void send_formation(const node::SendFormation& message);
  void save_members(node::SaveMembers record);
  void save_next_record();
  bool reload_key(const Config& config);

  // ---- control.cpp
  struct ClientSink final : Sink {
    explicit ClientSink(Daemon& daemon) : d(daemon) {}
    std::size_t room(node::ConnectionId client) override;
    void send(node::ConnectionId client, const wire::Message& message) override;
    void send_encoded(node::ConnectionId client, const std::string& body) override;
    void close(node::ConnectionId client) override;
    void hold(node::ConnectionId client, bool hold) override;
    Daemon& d;
  };
  node::ConnectionId next_connection() override;
  void on_opened(node::ConnectionId connection, const node::Caller& caller) override;
  void on_message(node::ConnectionId connection, wire::Message message) override;
  void on_closed(node::ConnectionId connection) override;
  void on_drained(node::ConnectionId connection) override;
  void serve(node::ConnectionId connection, wire::Message message);
  void answer_has_blob(node::ConnectionId connection, const wire::Message& message);
  void answer_error(node::ConnectionId connection, std::uint64_t request, const Error& error);

  // ---- clients.cpp
  Status open_door();
  void serve_door();
  void try_door();
  void reload_door();
  Result<node::Caller> caller_of_key(const std::string& user);

  // ---- relaying.cpp
  struct NodeSink final : Sink {
    explicit NodeSink(Daemon& daemon) : d(daemon) {}
    std::size_t room(node::ConnectionId own) override;
    void send(node::ConnectionId own, const wire::Message& message) override;
    Daemon& d;
  };
  void to_peer(const node::RelayPeer& peer, const wire::RelayMessage& message) override;
  void tell(node::Event event) override;
  void on_relayed(node::ConnectionId connection, wire::Message message) override;
  void on_relayed_closed(node::ConnectionId connection) override;
  void on_room(node::ConnectionId connection) override;

  Config config_;
  Prepared prepared_;
  LogSink& log_;
  const std::string version_;
  Housekeeping housekeeping_;
  store::DiskReserve reserve_;
  std::unique_ptr<loop::Loop> loop_;
  std::unique_ptr<Decider> decider_;
  std::unique_ptr<store::DiskWorker> worker_;
  std::unique_ptr<store::Committer> committer_;
  std::unique_ptr<store::CheckpointStore> checkpoints_;
  std::unique_ptr<proc::Runner> runner_;
  std::unique_ptr<proc::Stager> stager_;
  std::unique_ptr<proc::HookRunner> hooks_, host_hooks_;  // of users; of this host, whose hooks never wait for those of users
  Sinks sinks_;
  std::unique_ptr<proc::LogStreams> logs_;
  std::unique_ptr<proc::ExecSessions> execs_;
  std::unique_ptr<BlobStreams> blob_streams_;
  std::unique_ptr<CheckpointStreams> checkpoint_streams_;
  std::unique_ptr<net::ControlServer> control_;
  ClientSink clients_{*this};
  NodeSink node_{*this};
  RelayStreams relays_{*this, sinks_, node_};
  std::unique_ptr<host::Examiner> examiner_;
  std::string device_root_;                    // prefix of /dev for the GPUs
  std::unique_ptr<host::GpuWatch> gpu_watch_;  // null: there are no GPUs to watch
  std::unique_ptr<proc::HealthCheck> health_check_;
  std::unique_ptr<host::Resolver> resolver_;  // null, like links_: there is no network (--dev), or not yet
  std::unique_ptr<net::PeerLinks> links_;
  host::Endpoint listens_;                 // where it listens to other agents
  std::unique_ptr<net::ClientDoor> door_;  // null: no client key was ever configured, or the port is taken
  Instant door_due_ = kNever;              // when its port is tried again
  net::UserIds user_ids_{net::look_up_uid};
  net::UserNames user_names_{net::look_up_user};
  Founders founders_;
  std::vector<Source> sources_;

  std::deque<node::Event> events_;
  std::vector<node::Effect> effects_;                                        // of the event being decided
  std::vector<std::pair<node::ConnectionId, wire::ExecInput>> exec_inputs_;  // of this turn
  std::deque<store::DiskWorker::Work> deferred_;                             // bulk work that the worker's queue had no room for
  std::map<node::ConnectionId, std::size_t> upload_bytes_;                   // queued, not yet written
  std::vector<node::Effect> before_network_;                                 // effects for the links from before the links were open
  std::optional<node::SaveMembers> next_record_;                             // the newest record that the disk worker was not given yet
  bool saving_members_ = false;
  bool said_something_ = false;   // a message was sent to another agent since this was last cleared
  Instant next_log_look_{};       // when to look for logs older than tasks.logs.keepFor
  std::set<AssignmentId> shims_;  // shims that live, as far as is known
  std::optional<Error> storage_failed_;
  bool stopping_ = false;
};

}  // namespace dtrain::daemon
