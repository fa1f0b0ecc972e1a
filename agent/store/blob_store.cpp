#include "agent/store/blob_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "agent/store/file.h"

namespace dtrain::store {
namespace {

constexpr const char* kUploadPrefix = ".upload-";
constexpr std::size_t kFailedUploads = 1024;  // remembered until they end; beyond, chunks of others fail one by one
constexpr std::size_t kDigestBytes = kDigestHexBytes / 2;
constexpr std::uint64_t kFlushBytes = 8 << 20;  // unflushed bytes of an upload, which limits how long a commit waits for the disk

tl::unexpected<Error> disk_error(const std::string& what) {
  const int cause = errno;
  if (cause == ENOSPC || cause == EDQUOT)
    return fail(ErrorCode::limit, "could not " + what + ": the disk is full", "free some space on the agent's disk");
  return fail(ErrorCode::io, "could not " + what + ": " + ::strerror(cause));
}

}  // namespace

bool is_digest(const std::string& text) {
  return text.size() == kDigestHexBytes && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

struct BlobStore::Upload {
  std::string digest, path;
  UniqueFd file;
  std::uint64_t size = 0, flushed = 0;
  bool done = false;
  crypto_generichash_state hash;
  ~Upload() {
    if (!done) ::unlink(path.c_str());
  }
};

BlobStore::BlobStore(std::string dir, Reserve reserve, std::uint64_t cache_bytes)
    : dir_(std::move(dir)), reserve_(reserve), cache_bytes_(cache_bytes) {}
BlobStore::~BlobStore() = default;

Result<std::unique_ptr<BlobStore>> BlobStore::open(const std::string& dir, Reserve reserve, std::uint64_t cache_bytes) {
  if (sodium_init() < 0) return fail(ErrorCode::internal, "could not initialise libsodium");
  if (auto made = make_directories(dir, 0700); !made) return fail(made.error());
  DIR* listing = ::opendir(dir.c_str());
  if (!listing) return disk_error("read " + dir);
  while (const dirent* entry = ::readdir(listing))
    if (std::string_view(entry->d_name).starts_with(kUploadPrefix)) ::unlinkat(::dirfd(listing), entry->d_name, 0);
  ::closedir(listing);
  return std::unique_ptr<BlobStore>(new BlobStore(dir, reserve, cache_bytes));
}

Result<bool> BlobStore::has(const std::string& digest) const {
  if (!is_digest(digest)) return fail(ErrorCode::invalid, "could not look for a package: its digest is not 64 hex digits");
  // A question means that the blob is about to be used: its time of use is its modification time.
  if (::utimensat(AT_FDCWD, path_of(digest).c_str(), nullptr, 0) == 0) return true;
  if (errno == ENOENT) return false;
  return disk_error("look for package " + digest);
}

Status BlobStore::check_space(std::size_t bytes) const {
  struct statvfs disk {};
  if (::statvfs(dir_.c_str(), &disk) != 0) return disk_error("read the free space of " + dir_);
  const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  const std::uint64_t total = std::uint64_t{disk.f_blocks} * disk.f_frsize;
  const std::uint64_t keep = reserve_.of(total);
  if (free >= keep + bytes) return {};
  return fail(ErrorCode::limit,
              "could not store the package: only " + std::to_string(free >> 20) + " MiB are free in " + dir_ + " and " +
                  std::to_string(keep >> 20) + " MiB are kept (storage.minFree)",
              "free some space on the agent's disk");
}

Result<std::unique_ptr<BlobStore::Upload>> BlobStore::begin(const node::WriteBlob& chunk) {
  if (!is_digest(chunk.digest)) return fail(ErrorCode::invalid, "could not store the package: its digest is not 64 hex digits");
  if (uploads_.size() >= kUploads)
    return fail(ErrorCode::limit, "could not store the package: " + std::to_string(kUploads) + " uploads are under way", "try again later");
  auto upload = std::make_unique<Upload>();
  upload->digest = chunk.digest;
  upload->path = dir_ + "/" + kUploadPrefix + std::to_string(chunk.connection) + "-" + chunk.digest;
  upload->file = UniqueFd(::open(upload->path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!upload->file) return disk_error("create " + upload->path);
  crypto_generichash_init(&upload->hash, nullptr, 0, kDigestBytes);
  return upload;
}

Status BlobStore::append(Upload& upload, const node::WriteBlob& chunk) {
  if (chunk.offset != upload.size || chunk.digest != upload.digest)
    return fail(ErrorCode::invalid, "could not store the package: its chunks do not follow one another");
  if (chunk.bytes.size() > limits::kBlobChunkBytes)
    return fail(ErrorCode::limit,
                "could not store the package: a chunk has more than " + std::to_string(limits::kBlobChunkBytes) + " bytes");
  if (chunk.bytes.size() > limits::kPackageBytes - upload.size)
    return fail(ErrorCode::limit, "could not store the package: it has more than " + std::to_string(limits::kPackageBytes >> 30) + " GiB",
                "keep data outside the package");
  if (auto space = check_space(chunk.bytes.size()); !space) return space;
  if (!write_all(upload.file.get(), chunk.bytes)) return disk_error("write " + upload.path);
  crypto_generichash_update(&upload.hash, reinterpret_cast<const unsigned char*>(chunk.bytes.data()), chunk.bytes.size());
  upload.size += chunk.bytes.size();
  if (upload.size - upload.flushed < kFlushBytes) return {};
  upload.flushed = upload.size;
  if (::fdatasync(upload.file.get()) != 0) return disk_error("flush " + upload.path);
  return {};
}

Status BlobStore::finish(Upload& upload) {
  unsigned char sum[kDigestBytes];
  crypto_generichash_final(&upload.hash, sum, sizeof sum);
  char hex[kDigestHexBytes + 1];
  sodium_bin2hex(hex, sizeof hex, sum, sizeof sum);
  if (upload.digest != hex)
    return fail(ErrorCode::damaged,
                "could not store the package: what arrived has digest " + std::string(hex) + " and not " + upload.digest, "submit again");
  if (::fsync(upload.file.get()) != 0) return disk_error("flush " + upload.path);
  if (::rename(upload.path.c_str(), path_of(upload.digest).c_str()) != 0) return disk_error("rename " + upload.path);
  upload.done = true;
  evict();
  return flush_directory(dir_);
}

void BlobStore::evict() {
  struct Blob {
    timespec used;
    std::uint64_t bytes;
    std::string path;
  };
  std::vector<Blob> blobs;
  std::uint64_t total = 0;
  DIR* listing = ::opendir(dir_.c_str());
  if (!listing) return;  // the cache stays as it is
  while (const dirent* entry = ::readdir(listing)) {
    struct stat info {};
    if (!is_digest(entry->d_name) || ::fstatat(::dirfd(listing), entry->d_name, &info, 0) != 0) continue;
    total += static_cast<std::uint64_t>(info.st_size);
    blobs.push_back({info.st_mtim, static_cast<std::uint64_t>(info.st_size), path_of(entry->d_name)});
  }
  ::closedir(listing);
  std::sort(blobs.begin(), blobs.end(), [](const Blob& a, const Blob& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  const auto now = ::time(nullptr);
  for (const Blob& blob : blobs) {
    if (total <= cache_bytes_ || now - blob.used.tv_sec < kBlobYoung.count()) return;
    if (::unlink(blob.path.c_str()) == 0) total -= blob.bytes;
  }
}

std::optional<Result<std::string>> BlobStore::write(const node::WriteBlob& chunk) {
  const Key key{chunk.connection, chunk.digest};
  if (const auto failed = failed_.find(key); failed != failed_.end()) {
    if (!chunk.last) return std::nullopt;
    const Error error = std::move(failed->second);
    failed_.erase(failed);
    return std::optional<Result<std::string>>(fail(error));
  }
  const auto give_up = [&](const Error& error) {
    uploads_.erase(key);
    if (!chunk.last && is_digest(chunk.digest) && failed_.size() < kFailedUploads) failed_.emplace(key, error);
    return std::optional<Result<std::string>>(fail(error));
  };
  auto found = uploads_.find(key);
  if (found == uploads_.end()) {
    auto begun = begin(chunk);
    if (!begun) return give_up(begun.error());
    found = uploads_.emplace(key, std::move(*begun)).first;
  }
  Upload& upload = *found->second;
  if (auto written = append(upload, chunk); !written) return give_up(written.error());
  if (!chunk.last) return std::nullopt;
  if (auto finished = finish(upload); !finished) return give_up(finished.error());
  std::string digest = upload.digest;
  uploads_.erase(found);
  return Result<std::string>(std::move(digest));
}

void BlobStore::drop(node::ConnectionId connection) {
  std::erase_if(uploads_, [connection](const auto& upload) { return upload.first.first == connection; });
  std::erase_if(failed_, [connection](const auto& failed) { return failed.first.first == connection; });
}

}  // namespace dtrain::store
