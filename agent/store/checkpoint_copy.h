// The files of one checkpoint as one sequence of bytes: read on one host, written on another, and put in place there
// when all of it verifies. Rights: as in checkpoint_reader.h. Runs on the disk worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/store/blob_store.h"
#include "agent/store/checkpoint_files.h"
#include "agent/store/checkpoint_temporary.h"
#include "agent/store/checkpoint_verify.h"
#include "common/node/effect.h"

namespace dtrain::store {

using CopiedFiles = std::vector<wire::CheckpointFiles::File>;

// Reads a checkpoint. Error{not_found}: it is not there, or another one has its name; limit: more files than node::kCopiedFiles.
class CheckpointSource {
 public:
  // `below`: as of open_directory_below(), on the way to the checkpoint.
  static Result<CheckpointSource> open(const transfer::CheckpointInfo& info, const std::string& below);
  const CopiedFiles& files() const { return files_; }
  std::uint64_t size() const { return size_; }
  // Returns fewer bytes than `most` only at the end. Error{unavailable}: a file became shorter meanwhile.
  Result<std::string> read(std::uint64_t offset, std::size_t most);

 private:
  UniqueFd directory_, file_;
  std::optional<std::size_t> opened_;  // index of file_
  CopiedFiles files_;
  std::uint64_t size_ = 0;
};

struct CopyOptions {
  CopyOwner owner;
  Reserve reserve;  // of the disk that copies are written to
};

// Writes into a directory of its own (checkpoint_temporary.h) in checkpoint.dir, or beside info.path where that lies elsewhere, and
// renames what verified; files and directories that it makes are their owner's alone. Where its format has a hint, that then names it.
// What is not finished is removed by drop(), or in a later life of the agent. The bytes are not flushed: what a crash of the host damages
// is found when it is verified, and the source still has it.
//
// Error{damaged}: what came is not that checkpoint. Anything else is this host's: io, unavailable (it changed while it was read), limit
// (no space); the user's directory may change at any moment, and then neither the source nor the job is to blame.
class CheckpointTarget {
 public:
  // The first piece lists the files. Error{limit}: they would leave less space than must stay free; nothing was written.
  static Result<std::unique_ptr<CheckpointTarget>> begin(const node::WriteCheckpoint& first, const CopyOptions& options);
  Status write(std::string_view bytes);
  // After the last byte: checks about `budget` bytes more; returns true when the checkpoint is in place.
  Result<bool> finish(std::uint64_t budget);
  void drop();

 private:
  CheckpointTarget(const node::WriteCheckpoint& first, const CopyOptions& options);
  Status check_list() const;
  Status check_names() const;
  Status check_space(const Reserve& reserve) const;
  Status make_temporary();
  Status open_next();
  Status put();
  Status put_one(const UniqueFd& to, const std::string& name) const;
  tl::unexpected<Error> damaged(const std::string& cause) const;
  tl::unexpected<Error> failed_here(const Error& cause) const;

  transfer::CheckpointInfo info_;
  const transfer::Format& format_;
  CopiedFiles files_;
  std::string home_;        // the directory that files are renamed in
  std::string inside_;      // the files' directory in it; "": home_ itself
  std::string base_;        // of a bundle
  std::string temporary_;   // its name in home_
  bool elsewhere_ = false;  // not in checkpoint.dir
  UniqueFd home_directory_, temporary_directory_;
  std::size_t next_ = 0;    // index of the next file to open
  std::uint64_t left_ = 0;  // bytes left of the open file
  UniqueFd file_;
  std::optional<Verification> verification_;
};

}  // namespace dtrain::store
