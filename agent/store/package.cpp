#include "agent/store/package.h"

#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/store/blob_store.h"
#include "agent/store/file.h"
#include "common/base/limits.h"

namespace dtrain::store {

namespace {

constexpr std::size_t kPackageReadBytes = 256 << 10;
constexpr std::size_t kTarErrorBytes = 4096;  // of what tar says, looked at
constexpr int kCannotExecute = 127;

// A temporary file that is removed unless it is kept.
class Temporary {
 public:
  static Result<Temporary> create() {
    const char* base = ::getenv("TMPDIR");
    std::string path = std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/dtrain-package-XXXXXX";
    UniqueFd file(::mkostemp(path.data(), O_CLOEXEC));
    if (!file)
      return fail(ErrorCode::io, "could not make temporary file " + path + ": " + std::strerror(errno),
                  "set TMPDIR to a directory that you can write to");
    return Temporary(std::move(path), std::move(file));
  }
  Temporary(Temporary&& other) noexcept : path_(std::exchange(other.path_, {})), file_(std::move(other.file_)) {}
  Temporary& operator=(Temporary&&) = delete;
  ~Temporary() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  int fd() const { return file_.get(); }
  const std::string& path() const { return path_; }
  std::string keep() { return std::exchange(path_, {}); }

 private:
  Temporary(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  UniqueFd file_;
};

[[noreturn]] void run_tar(const std::string& dir, int output, int errors) {
  // Nothing of the user's environment may change what tar writes (TAR_OPTIONS, TZ, LANG).
  static constexpr std::array<const char*, 3> kEnvironment = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", nullptr};
  const std::string directory = "--directory=" + dir;
  const std::array<const char*, 10> argv = {"tar",       "--create",        "--format=gnu",    "--sort=name", "--owner=0",
                                            "--group=0", "--numeric-owner", directory.c_str(), ".",           nullptr};
  ::signal(SIGPIPE, SIG_DFL);
  if (::dup2(output, STDOUT_FILENO) >= 0 && ::dup2(errors, STDERR_FILENO) >= 0) {
    environ = const_cast<char**>(kEnvironment.data());
    ::execvp(argv[0], const_cast<char* const*>(argv.data()));
  }
  ::_exit(kCannotExecute);
}

// The first line that says what went wrong: "./secret: Cannot open: Permission denied".
std::string first_complaint(int errors) {
  std::string text(kTarErrorBytes, '\0');
  const ssize_t got = ::pread(errors, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  text = text.substr(0, text.find('\n'));
  constexpr std::string_view kPrefix = "tar: ";
  return text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : text;
}

class Hash {
 public:
  Hash() { crypto_generichash_init(&state_, nullptr, 0, kDigestHexBytes / 2); }
  void add(std::string_view bytes) {
    crypto_generichash_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  }
  std::string hex() {
    std::array<unsigned char, kDigestHexBytes / 2> sum;
    crypto_generichash_final(&state_, sum.data(), sum.size());
    std::array<char, kDigestHexBytes + 1> hex;
    ::sodium_bin2hex(hex.data(), hex.size(), sum.data(), sum.size());
    return hex.data();
  }

 private:
  crypto_generichash_state state_;
};

// Hashes a tar with the times of its members, and the header checksums that cover them, blanked. So the result is
// never the hash of a tar.
class ContentHash {
 public:
  void add(std::string_view bytes) {
    while (!bytes.empty()) {
      const bool data = data_left_ > 0;
      const std::size_t part = std::min<std::uint64_t>(bytes.size(), data ? data_left_ : kBlock - header_.size());
      if (data) {
        hash_.add(bytes.substr(0, part));
        data_left_ -= part;
      } else {
        header_.append(bytes.substr(0, part));
        if (header_.size() == kBlock) end_header();
      }
      bytes.remove_prefix(part);
    }
  }
  std::string hex() { return hash_.hex(); }

 private:
  // The positions of a header's fields (tar.h of GNU tar).
  static constexpr std::size_t kBlock = 512, kSize = 124, kTime = 136, kChecksum = 148, kNumber = 12, kChecksumBytes = 8;

  void end_header() {
    data_left_ = (size() + kBlock - 1) / kBlock * kBlock;
    std::fill_n(header_.begin() + kTime, kNumber, '\0');
    std::fill_n(header_.begin() + kChecksum, kChecksumBytes, '\0');
    hash_.add(header_);
    header_.clear();
  }
  // In octal digits; a larger number is binary, after a first byte of 0x80.
  std::uint64_t size() const {
    const std::string_view field = std::string_view(header_).substr(kSize, kNumber);
    const bool binary = (static_cast<unsigned char>(field.front()) & 0x80) != 0;
    std::uint64_t value = 0;
    for (std::size_t i = binary ? 1 : 0; i < field.size() && (binary || (field[i] >= '0' && field[i] <= '7')); ++i)
      value = binary ? value << 8 | static_cast<unsigned char>(field[i]) : value << 3 | static_cast<std::uint64_t>(field[i] - '0');
    return value;
  }

  Hash hash_;
  std::string header_;
  std::uint64_t data_left_ = 0;
};

struct Hashes {
  Hash bytes;
  ContentHash content;
};

// Copies tar's output into the file and hashes it on the way. Ends with the output, or at the first failure.
Status copy_and_hash(const std::string& dir, int from, const Temporary& to, Hashes& hashes) {
  std::vector<char> buffer(kPackageReadBytes);
  std::uint64_t total = 0;
  while (true) {
    const ssize_t got = ::read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(ErrorCode::io, "could not pack " + dir + ": " + std::strerror(errno), "try again");
    if (got == 0) return {};
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
    total += bytes.size();
    if (total > limits::kPackageBytes)
      return fail(ErrorCode::limit, "could not pack " + dir + ": it has more than " + std::to_string(limits::kPackageBytes >> 30) + " GiB",
                  "keep data out of it and name it in requires.paths");
    if (!write_all(to.fd(), bytes))
      return fail(ErrorCode::io, "could not write " + to.path() + ": " + std::strerror(errno), "free space there, or set TMPDIR");
    hashes.bytes.add(bytes);
    hashes.content.add(bytes);
  }
}

}  // namespace

Result<PackedFile> pack_directory(const std::string& dir) {
  if (::sodium_init() < 0) return fail(ErrorCode::internal, "could not initialise libsodium");
  struct stat info {};
  if (::stat(dir.c_str(), &info) != 0)
    return fail(ErrorCode::invalid, "could not pack " + dir + ": " + std::strerror(errno), "give a directory");
  if (!S_ISDIR(info.st_mode)) return fail(ErrorCode::invalid, "could not pack " + dir + ": not a directory", "give a directory");
  auto packed = Temporary::create();
  if (!packed) return fail(packed.error());
  const UniqueFd errors(::memfd_create("dtrain-tar", MFD_CLOEXEC));
  int ends[2];
  if (!errors || ::pipe2(ends, O_CLOEXEC) != 0)
    return fail(ErrorCode::io, "could not pack " + dir + ": " + std::strerror(errno), "try again");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return fail(ErrorCode::io, "could not pack " + dir + ": " + std::strerror(errno), "try again");
  if (pid == 0) run_tar(dir, write_end.get(), errors.get());
  write_end.reset();

  Hashes hashes;
  const Status copied = copy_and_hash(dir, read_end.get(), *packed, hashes);
  if (!copied) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!copied) return fail(copied.error());
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotExecute)
    return fail(ErrorCode::unavailable, "could not pack " + dir + ": there is no tar here", "install GNU tar");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return fail(ErrorCode::invalid, "could not pack " + dir + ": " + first_complaint(errors.get()),
                "make every file of the package readable for you, and change none meanwhile");
  return PackedFile{packed->keep(), hashes.bytes.hex(), hashes.content.hex()};
}

}  // namespace dtrain::store
