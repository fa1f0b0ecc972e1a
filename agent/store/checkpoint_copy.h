// The files of one checkpoint as one row of bytes: read where it is, written where it is to be, and put in place there when all of it
// verifies. Rights: as in checkpoint_reader.h. On the disk worker.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/store/checkpoint_files.h"
#include "agent/store/checkpoint_verify.h"
#include "common/node/effect.h"

namespace dtrain::store {

using CopiedFiles = std::vector<wire::CheckpointFiles::File>;

// Reads one. Error{not_found}: it is not there, or another one has its name; limit: more files than node::kCopiedFiles.
class CheckpointSource {
 public:
  static Result<CheckpointSource> open(const transfer::CheckpointInfo& info);
  const CopiedFiles& files() const { return files_; }
  std::uint64_t size() const { return size_; }
  // Fewer bytes than `most` only at the end. Error{unavailable}: a file became shorter meanwhile.
  Result<std::string> read(std::uint64_t offset, std::size_t most);

 private:
  FileDescriptor directory_, file_;
  std::optional<std::size_t> opened_;  // number of file_
  CopiedFiles files_;
  std::uint64_t size_ = 0;
};

// Writes beside info.path, under a name that ends in .tmp and is never taken for a checkpoint. What is not finished is removed by
// drop(), or when the next copy to that path begins. The bytes are not flushed: what a crash of the host damages is found when
// it is verified, and the source still has it.
class CheckpointTarget {
 public:
  // The first piece names the files. Error{damaged}: names or sizes that are none of a checkpoint's.
  static Result<std::unique_ptr<CheckpointTarget>> begin(const node::WriteCheckpoint& first);
  Status write(std::string_view bytes);
  // After the last byte: checks about `budget` bytes more; true: it is in place. Error{damaged}: it is not what it should be.
  Result<bool> finish(std::uint64_t budget);
  void drop();

 private:
  explicit CheckpointTarget(const node::WriteCheckpoint& first);
  Status open_next();
  Status put();
  Status put_one(const std::string& name);
  tl::unexpected<Error> could_not(const Error& cause) const;

  transfer::CheckpointInfo info_;
  CopiedFiles files_;
  std::string parent_, base_, temporary_;
  std::size_t next_ = 0;        // file to be opened
  std::uint64_t left_ = 0;      // bytes of the one that is open
  FileDescriptor file_;
  std::optional<Verification> verification_;
};

}  // namespace dtrain::store
