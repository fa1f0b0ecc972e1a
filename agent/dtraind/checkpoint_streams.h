// Checkpoints that go from one host to another: read for other agents (node::SendCheckpoint), as far as their stream has room, and
// written here (node::WriteCheckpoint). On the disk worker, a little at a time, with the rights of the job's user.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "agent/dtraind/relays.h"
#include "agent/proc/outlet.h"
#include "agent/store/checkpoint_copy.h"
#include "agent/store/disk_worker.h"
#include "common/node/effect.h"

namespace dtrain::daemon {

// Encoded names and sizes of a checkpoint that is sent: one message, of which the other end reads up to a window too much.
inline constexpr std::size_t kCheckpointListBytes = kRelayAnswerBytes - relay::kWindowBytes - (4 << 10);
inline constexpr std::uint64_t kCheckPiece = 16 << 20;  // bytes of a copy that are verified before other work passes

class CheckpointStreams {
 public:
  using Post = std::function<void(store::DiskWorker::Work)>;  // bulk work
  using Tell = std::function<void(node::Event)>;
  CheckpointStreams(proc::Outlet& outlet, Post post, Tell tell, store::CopyOptions options)
      : outlet_(outlet), post_(std::move(post)), tell_(std::move(tell)), options_(std::move(options)) {}

  // ---- read for others: one stream of a connection
  void open(const node::SendCheckpoint& effect);
  void close(node::ConnectionId connection) { streams_.erase(connection); }
  void wake(node::ConnectionId connection);  // it has room again

  // ---- written here
  // `taken`: when the disk has the piece.
  void write(node::WriteCheckpoint piece, std::function<void()> taken);
  void drop(node::ConnectionId writer);

 private:
  struct Source;  // the disk worker's
  struct Target;  // likewise
  struct Stream {
    std::uint64_t request = 0;
    std::uint64_t offset = 0;
    std::shared_ptr<Source> source;
    bool reading = false;
    bool listed = false;  // it was told which files there are
  };
  void read(node::ConnectionId connection, Stream& stream);
  void finish(node::ConnectionId writer, std::shared_ptr<Target> target);
  void fail_with(node::ConnectionId connection, std::uint64_t request, const Error& error);

  proc::Outlet& outlet_;
  Post post_;
  Tell tell_;
  const store::CopyOptions options_;
  std::map<node::ConnectionId, Stream> streams_;
  std::map<node::ConnectionId, std::shared_ptr<Target>> targets_;
};

}  // namespace dtrain::daemon
