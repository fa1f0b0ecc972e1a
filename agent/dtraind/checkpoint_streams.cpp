#include "agent/dtraind/checkpoint_streams.h"

#include <algorithm>

#include "agent/account/as_user.h"
#include "agent/dtraind/blob_streams.h"
#include "common/wire/control.h"

namespace dtrain::daemon {

namespace {

Result<store::CheckpointSource> open_source(const transfer::CheckpointInfo& info, const std::string& below) {
  auto opened = store::CheckpointSource::open(info, below);
  if (!opened) return opened;
  const std::size_t bytes = wire::encode(wire::CheckpointFiles{opened->files()}).size();
  if (bytes <= kCheckpointListBytes) return opened;
  return fail(ErrorCode::limit,
              "could not send checkpoint " + info.path + ": it has " + std::to_string(opened->files().size()) +
                  " files, whose names take " + std::to_string(bytes) + " bytes, at most " + std::to_string(kCheckpointListBytes),
              "write fewer files, or into a directory that all hosts share");
}
}  // namespace

struct CheckpointStreams::Source {
  transfer::CheckpointInfo info;
  task::User user;
  std::string below;
  std::optional<store::CheckpointSource> opened;
};

struct CheckpointStreams::Target {
  task::User user;
  std::unique_ptr<store::CheckpointTarget> opened;
  bool failed = false;  // the failure was reported; later pieces are dropped
};

void CheckpointStreams::fail_with(node::ConnectionId connection, std::uint64_t request, const Error& error) {
  outlet_.send(connection, wire::make_message(wire::MessageType::error, request, wire::error_reply(error)));
}

void CheckpointStreams::open(const node::SendCheckpoint& effect) {
  const auto [stream, added] = streams_.try_emplace(effect.connection);
  if (!added)
    return fail_with(effect.connection, effect.request,
                     {ErrorCode::invalid, "could not send a checkpoint: this stream has one already", "open another stream"});
  stream->second.request = effect.request;
  stream->second.offset = effect.offset;
  stream->second.source = std::make_shared<Source>();
  stream->second.source->info = effect.info;
  stream->second.source->user = effect.user;
  stream->second.source->below = effect.below;
  read(effect.connection, stream->second);
}

void CheckpointStreams::wake(node::ConnectionId connection) {
  const auto stream = streams_.find(connection);
  if (stream != streams_.end()) read(connection, stream->second);
}

void CheckpointStreams::read(node::ConnectionId connection, Stream& stream) {
  if (stream.reading) return;
  const std::size_t chunks = std::min(outlet_.room(connection) / proc::kStreamMessageBytes, kChunksPerRead);
  if (chunks == 0) return;  // wake() follows
  stream.reading = true;
  post_([this, connection, source = stream.source, offset = stream.offset, chunks]() -> store::DiskWorker::Done {
    Result<std::string> bytes = fail(ErrorCode::internal, "");
    const auto rights = account::AsUser::enter(source->user);
    if (!rights) {
      bytes = fail(rights.error());
    } else {
      Status there;
      if (!source->opened) {
        auto opened = open_source(source->info, source->below);
        if (opened) source->opened.emplace(std::move(*opened));
        else there = fail(opened.error());
      }
      bytes = there ? source->opened->read(offset, chunks * proc::kStreamChunkBytes) : Result<std::string>(fail(there.error()));
    }
    return [this, connection, source, bytes = std::move(bytes)] {
      const auto found = streams_.find(connection);
      if (found == streams_.end() || found->second.source != source) return;  // closed meanwhile
      Stream& now = found->second;
      now.reading = false;
      const std::uint64_t request = now.request;
      if (!bytes) {
        streams_.erase(found);
        return fail_with(connection, request, bytes.error());
      }
      if (!std::exchange(now.listed, true))
        outlet_.send(connection, wire::make_message(wire::MessageType::checkpoint_files, request,
                                                    wire::CheckpointFiles{source->opened->files()}, false));
      const std::string_view all = *bytes;
      std::size_t at = 0;
      bool last = false;
      do {
        wire::BlobChunk chunk;
        chunk.offset = now.offset;
        chunk.bytes = all.substr(at, proc::kStreamChunkBytes);
        at += chunk.bytes.size();
        now.offset += chunk.bytes.size();
        last = now.offset >= source->opened->size();
        outlet_.send(connection, wire::make_message(wire::MessageType::blob_chunk, request, chunk, last));
      } while (at < all.size());
      if (last) streams_.erase(found);
      else read(connection, now);
    };
  });
}

void CheckpointStreams::write(node::WriteCheckpoint piece, std::function<void()> taken) {
  auto& target = targets_[piece.writer];
  if (!target) {
    target = std::make_shared<Target>();
    target->user = piece.user;
  }
  auto shared = std::make_shared<const node::WriteCheckpoint>(std::move(piece));
  post_([this, target, shared, taken = std::move(taken)]() -> store::DiskWorker::Done {
    Status result;
    const bool failed = target->failed;
    if (!failed) {
      const auto rights = account::AsUser::enter(target->user);
      if (!rights) result = fail(rights.error());
      if (result && !target->opened) {
        auto begun = store::CheckpointTarget::begin(*shared, options_);
        if (begun) target->opened = std::move(*begun);
        else result = fail(begun.error());
      }
      if (result) result = target->opened->write(shared->bytes);
      target->failed = !result;
    }
    return [this, target, shared, taken, failed, result] {
      taken();
      if (failed) return;
      if (!result) tell_(node::CheckpointWritten{shared->writer, result});
      else if (shared->last) finish(shared->writer, target);
    };
  });
}

void CheckpointStreams::finish(node::ConnectionId writer, std::shared_ptr<Target> target) {
  post_([this, writer, target]() -> store::DiskWorker::Done {
    Result<bool> done = fail(ErrorCode::internal, "");
    const auto rights = account::AsUser::enter(target->user);
    done = rights ? target->opened->finish(kCheckPiece) : Result<bool>(fail(rights.error()));
    return [this, writer, target, done] {
      const auto found = targets_.find(writer);
      if (found == targets_.end() || found->second != target) return;  // dropped
      if (done && !*done) return finish(writer, target);
      if (done) targets_.erase(found);  // otherwise drop() follows
      tell_(node::CheckpointWritten{writer, done ? Status{} : Status(fail(done.error()))});
    };
  });
}

void CheckpointStreams::drop(node::ConnectionId writer) {
  const auto found = targets_.find(writer);
  if (found == targets_.end()) return;
  const auto target = std::move(found->second);
  targets_.erase(found);
  post_([target]() -> store::DiskWorker::Done {
    if (const auto rights = account::AsUser::enter(target->user); rights && target->opened) target->opened->drop();
    return {};
  });
}

}  // namespace dtrain::daemon
