// Blobs that other agents fetch (node::SendBlob): read on the disk worker, a few chunks at a time, as far as the stream that
// asked has room for them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "agent/proc/outlet.h"
#include "agent/store/blob_store.h"
#include "agent/store/disk_worker.h"
#include "common/node/effect.h"

namespace dtrain::daemon {

inline constexpr std::size_t kChunksPerRead = 4;  // of proc::kStreamChunkBytes: a commit waits for no more

class BlobStreams {
 public:
  using Post = std::function<void(store::DiskWorker::Work)>;  // bulk work of the disk worker, which owns the blobs
  BlobStreams(const store::BlobStore& blobs, proc::Outlet& outlet, Post post)
      : blobs_(blobs), outlet_(outlet), post_(std::move(post)) {}

  // One stream of a connection: a further one is refused. At most as many as connections are relayed (node::kRelaysAccepted).
  void open(const node::SendBlob& effect);
  void close(node::ConnectionId connection) { streams_.erase(connection); }
  void wake(node::ConnectionId connection);  // it has room again

 private:
  struct Source;  // the disk worker's
  struct Stream {
    std::uint64_t request = 0;
    std::uint64_t offset = 0;
    std::shared_ptr<Source> source;
    bool reading = false;
  };
  void read(node::ConnectionId connection, Stream& stream);
  void fail_with(node::ConnectionId connection, std::uint64_t request, const Error& error);

  const store::BlobStore& blobs_;
  proc::Outlet& outlet_;
  Post post_;
  std::map<node::ConnectionId, Stream> streams_;
};

}  // namespace dtrain::daemon
