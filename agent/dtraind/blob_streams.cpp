#include "agent/dtraind/blob_streams.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "agent/store/file.h"
#include "common/wire/control.h"

namespace dtrain::daemon {

struct BlobStreams::Source {
  std::string digest;
  UniqueFd file;
};

namespace {

// What was read: bytes, and whether the blob ends with them.
struct Piece {
  std::string bytes;
  bool last = false;
};

Result<Piece> read_piece(int fd, const std::string& digest, std::uint64_t offset, std::size_t most) {
  Piece piece;
  piece.bytes.resize(most);
  std::size_t have = 0;
  while (have < most) {
    const ssize_t n = ::pread(fd, piece.bytes.data() + have, most - have, static_cast<off_t>(offset + have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(ErrorCode::io, "could not read package " + digest.substr(0, 12) + ": " + ::strerror(errno));
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  piece.last = have < most;  // a size that is an exact multiple ends with an empty piece
  piece.bytes.resize(have);
  return piece;
}

}  // namespace

void BlobStreams::fail_with(node::ConnectionId connection, std::uint64_t request, const Error& error) {
  outlet_.send(connection, wire::make_message(wire::MessageType::error, request, wire::error_reply(error)));
}

void BlobStreams::open(const node::SendBlob& effect) {
  if (!store::is_digest(effect.digest))
    return fail_with(effect.connection, effect.request,
                     {ErrorCode::invalid, "could not send a package: its digest is not 64 hex digits", ""});
  const auto [stream, added] = streams_.try_emplace(effect.connection);
  if (!added)
    return fail_with(effect.connection, effect.request,
                     {ErrorCode::invalid, "could not send a package: this stream has one already", "open another stream"});
  stream->second.request = effect.request;
  stream->second.offset = effect.offset;
  stream->second.source = std::make_shared<Source>();
  stream->second.source->digest = effect.digest;
  read(effect.connection, stream->second);
}

void BlobStreams::wake(node::ConnectionId connection) {
  const auto stream = streams_.find(connection);
  if (stream != streams_.end()) read(connection, stream->second);
}

void BlobStreams::read(node::ConnectionId connection, Stream& stream) {
  if (stream.reading) return;
  const std::size_t chunks = std::min(outlet_.room(connection) / proc::kStreamMessageBytes, kChunksPerRead);
  if (chunks == 0) return;  // wake() follows
  stream.reading = true;
  post_([this, connection, source = stream.source, offset = stream.offset, chunks]() -> store::DiskWorker::Done {
    Result<Piece> piece = Piece{};
    if (!source->file) {
      const auto there = blobs_.has(source->digest);  // which also counts as a use
      if (there && *there) source->file = UniqueFd(::open(blobs_.path_of(source->digest).c_str(), O_RDONLY | O_CLOEXEC));
      if (!there) piece = fail(there.error());
      else if (!source->file) piece = fail(ErrorCode::not_found, "package " + source->digest.substr(0, 12) + " is not on this host");
    }
    if (source->file) piece = read_piece(source->file.get(), source->digest, offset, chunks * proc::kStreamChunkBytes);
    return [this, connection, source, piece = std::move(piece)] {
      const auto found = streams_.find(connection);
      if (found == streams_.end() || found->second.source != source) return;  // closed meanwhile
      Stream& now = found->second;
      now.reading = false;
      const std::uint64_t request = now.request;
      if (!piece) {
        streams_.erase(found);
        return fail_with(connection, request, piece.error());
      }
      const std::string_view bytes = piece->bytes;
      std::size_t at = 0;
      do {
        wire::BlobChunk chunk;
        chunk.offset = now.offset;
        chunk.bytes = bytes.substr(at, proc::kStreamChunkBytes);
        at += chunk.bytes.size();
        now.offset += chunk.bytes.size();
        const bool last = piece->last && at == bytes.size();
        outlet_.send(connection, wire::make_message(wire::MessageType::blob_chunk, request, chunk, last));
      } while (at < bytes.size());
      if (piece->last) streams_.erase(found);
      else read(connection, now);
    };
  });
}

}  // namespace dtrain::daemon
