// Content-addressed blobs (job packages): <dir>/<BLAKE2b-256 hex>. A blob appears under its name only when all of it
// has arrived, matches its name, and is flushed.
//
// Used on the disk worker only, after open().
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/base/limits.h"
#include "common/base/result.h"
#include "common/node/effect.h"

namespace dtrain::store {

inline constexpr std::size_t kUploads = 64;  // under way at once; a further one is refused
inline constexpr std::size_t kDigestHexBytes = 64;

// Free space that is kept for the ledger and the tasks: uploads that would go below are refused.
struct Reserve {
  std::uint32_t percent = 5;
  std::uint64_t bytes = 0;                                                                          // when not 0: instead of percent
  std::uint64_t of(std::uint64_t disk) const { return bytes != 0 ? bytes : disk / 100 * percent; }  // bytes
};

// A blob used this recently is never evicted: a job that was just submitted may not be staged yet.
inline constexpr std::chrono::seconds kBlobYoung{3600};
inline constexpr std::uint64_t kCacheUnlimited = ~0ull;

bool is_digest(const std::string& text);  // 64 lower-case hex digits

class BlobStore {
 public:
  // Creates the directory; removes what unfinished uploads of an earlier life left. When blobs take more than
  // `cache_bytes`, those unused the longest go (their jobs' working copies stay).
  static Result<std::unique_ptr<BlobStore>> open(const std::string& dir, Reserve reserve, std::uint64_t cache_bytes = kCacheUnlimited);
  ~BlobStore();

  Result<bool> has(const std::string& digest) const;
  std::string path_of(const std::string& digest) const { return dir_ + "/" + digest; }

  // One chunk; those of a connection with the same digest are one upload, and follow one another (each is a request of its own:
  // dtrainctl). Answers: the digest when the last chunk is stored, or the first failure, at once and again at the last chunk;
  // chunks between are dropped.
  std::optional<Result<std::string>> write(const node::WriteBlob& chunk);
  // Ends the uploads of a connection that is gone.
  void drop(node::ConnectionId connection);

 private:
  struct Upload;
  using Key = std::pair<node::ConnectionId, std::string>;  // the digest
  BlobStore(std::string dir, Reserve reserve, std::uint64_t cache_bytes);
  void evict();
  Result<std::unique_ptr<Upload>> begin(const node::WriteBlob& chunk);
  Status append(Upload& upload, const node::WriteBlob& chunk);
  Status finish(Upload& upload);
  Status check_space(std::size_t bytes) const;

  std::string dir_;
  Reserve reserve_;
  std::uint64_t cache_bytes_;
  std::map<Key, std::unique_ptr<Upload>> uploads_;
  std::map<Key, Error> failed_;  // the rest of their chunks may still be under way
};

}  // namespace dtrain::store
