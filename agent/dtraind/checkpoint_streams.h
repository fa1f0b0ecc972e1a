// Moves checkpoints between hosts: reads them for other agents (node::SendCheckpoint) while their streams have room,
// and writes them here (node::WriteCheckpoint). Both happen on the disk worker, a little at a time, with the rights
// of the job's user.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "agent/dtraind/relay_streams.h"
#include "agent/proc/outlet.h"
#include "agent/store/checkpoint_copy.h"
#include "agent/store/disk_worker.h"
#include "common/node/effect.h"

namespace dtrain::daemon {

// Encoded names and sizes of a checkpoint's files: one message. The other end may have read up to a window beyond it.
inline constexpr std::size_t kCheckpointListBytes = kRelayAnswerBytes - relay::kWindowBytes - (4 << 10);
inline constexpr std::uint64_t kCheckPiece = 16 << 20;  // bytes of a copy that are verified before other work gets its turn

class CheckpointStreams {
 public:
  using Post = std::function<void(store::DiskWorker::Work)>;  // bulk work
  using Tell = std::function<void(node::Event)>;
  CheckpointStreams(proc::Outlet& outlet, Post post, Tell tell, store::CopyOptions options)
      : outlet_(outlet), post_(std::move(post)), tell_(std::move(tell)), options_(std::move(options)) {}

  // ---- reading for others; a connection may have one stream
  void open(const node::SendCheckpoint& effect);
  void close(node::ConnectionId connection) { streams_.erase(connection); }
  void wake(node::ConnectionId connection);  // the connection has room again

  // ---- writing here
  //
  // `taken` is called when the disk has the piece.
  void write(node::WriteCheckpoint piece, std::function<void()> taken);
  void drop(node::ConnectionId writer);

 private:
  struct Source;  // used by the disk worker only
  struct Target;  // used by the disk worker only
  struct Stream {
    std::uint64_t request = 0;
    std::uint64_t offset = 0;
    std::shared_ptr<Source> source;
    bool reading = false;
    bool listed = false;  // the list of files was sent
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
