// Sends blobs that other agents fetch (node::SendBlob): read on the disk worker, a few chunks at a time, while the
// stream that asked has room for them.
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

inline constexpr std::size_t kChunksPerRead = 4;  // of proc::kStreamChunkBytes: commits wait for no longer read

class BlobStreams {
 public:
  using Post = std::function<void(store::DiskWorker::Work)>;  // posts bulk work to the disk worker, which owns the blobs
  BlobStreams(const store::BlobStore& blobs, proc::Outlet& outlet, Post post) : blobs_(blobs), outlet_(outlet), post_(std::move(post)) {}

  // A connection may have one stream: a further one is refused. So there are at most as many as relayed connections
  // (node::kRelaysAccepted).
  void open(const node::SendBlob& effect);
  void close(node::ConnectionId connection) { streams_.erase(connection); }
  void wake(node::ConnectionId connection);  // the connection has room again

 private:
  struct Source;  // used by the disk worker only
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
