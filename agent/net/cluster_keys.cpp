#include "agent/net/cluster_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string_view>

#include "common/base/check.h"
#include "common/wire/key_file.h"

namespace dtrain::net {
namespace {

constexpr std::string_view kNodeKeyLabel = "dtrain-node-key-v1";  // part of the derivation: never changes
constexpr std::size_t kPrintBytes = 8;                            // 16 hex digits
constexpr const char* kCopyNext = "make one with `dtrainctl keygen FILE` and copy it to all hosts";

static_assert(sizeof(CurveKey) == crypto_box_PUBLICKEYBYTES && sizeof(CurveKey) == crypto_box_SECRETKEYBYTES);
static_assert(sizeof(CurveKey) == crypto_generichash_BYTES);

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

auto unreadable(const std::string& path, ErrorCode code, const std::string& cause, const std::string& next) {
  return fail(code, "could not read cluster key " + path + ": " + cause, next);
}

Result<std::string> read_private_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const int cause = errno;
    if (cause == ENOENT) return unreadable(path, ErrorCode::not_found, ::strerror(cause), kCopyNext);
    return unreadable(path, cause == EACCES || cause == EPERM ? ErrorCode::refused : ErrorCode::io,
                      ::strerror(cause), "make it readable for the agent's user alone: chown, chmod 0600");
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return unreadable(path, ErrorCode::io, ::strerror(errno), "");
  if (!S_ISREG(status.st_mode))
    return unreadable(path, ErrorCode::invalid, "it is no regular file", kCopyNext);
  if ((status.st_mode & 077) != 0)
    return unreadable(path, ErrorCode::refused, "others than its owner may access it", "chmod 0600 " + path);
  // One byte more than allowed tells "too long" without reading further.
  std::string text(wire::kKeyFileBytes + 1, '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t n = ::read(file.get(), text.data() + filled, text.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unreadable(path, ErrorCode::io, ::strerror(errno), "");
    if (n == 0) break;
    filled += static_cast<std::size_t>(n);
  }
  text.resize(filled);
  return text;
}

}  // namespace

Result<ClusterKeys> read_key_file(const std::string& path) {
  auto text = read_private_file(path);
  if (!text) return fail(text.error());
  const auto parsed = wire::parse_key_file(*text);
  ::sodium_memzero(text->data(), text->size());
  if (!parsed) return unreadable(path, parsed.error().code, parsed.error().message, parsed.error().next);
  if (parsed->size() > kKeysInFile)
    return unreadable(path, ErrorCode::limit, "more than " + std::to_string(kKeysInFile) + " pairs",
                      "remove those that no host uses any more");
  ClusterKeys keys;
  for (std::size_t i = 0; i < parsed->size(); ++i) {
    const KeyPair pair{(*parsed)[i].public_key, (*parsed)[i].secret_key};
    CurveKey expected{};
    if (::crypto_scalarmult_base(expected.data(), pair.secret_key.data()) != 0 || expected != pair.public_key)
      return unreadable(path, ErrorCode::damaged,
                        "the public key of pair " + std::to_string(i + 1) + " does not belong to its secret",
                        "copy the file again from a host where it works");
    keys.pairs.push_back(pair);
  }
  return keys;
}

KeyPair node_key(const KeyPair& cluster, const MemberId& node) {
  std::array<std::uint8_t, kNodeKeyLabel.size() + 16> input{};
  std::size_t at = 0;
  for (const char c : kNodeKeyLabel) input[at++] = static_cast<std::uint8_t>(c);
  for (const std::uint64_t half : {node.high, node.low})
    for (int shift = 56; shift >= 0; shift -= 8) input[at++] = static_cast<std::uint8_t>(half >> shift);
  KeyPair pair;
  CHECK(::crypto_generichash(pair.secret_key.data(), pair.secret_key.size(), input.data(), input.size(),
                             cluster.secret_key.data(), cluster.secret_key.size()) == 0);
  // Any 32 bytes are a secret of X25519 (it clamps them itself): this cannot fail.
  CHECK(::crypto_scalarmult_base(pair.public_key.data(), pair.secret_key.data()) == 0);
  return pair;
}

std::string key_print(const CurveKey& public_key) {
  std::array<std::uint8_t, crypto_generichash_BYTES> hash{};
  CHECK(::crypto_generichash(hash.data(), hash.size(), public_key.data(), public_key.size(), nullptr, 0) ==
        0);
  std::string print;
  for (std::size_t i = 0; i < kPrintBytes; ++i) {
    print.push_back("0123456789abcdef"[hash[i] >> 4]);
    print.push_back("0123456789abcdef"[hash[i] & 15]);
  }
  return print;
}

}  // namespace dtrain::net
