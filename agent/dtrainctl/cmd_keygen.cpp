// Makes the cluster's key file, or appends a pair to it. The secret is in a file of mode 0600 from its first
// byte and nowhere else: never on a terminal, in an argument or a message.
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/unique_fd.h"
#include "common/wire/key_file.h"

namespace dtrain::ctl {
namespace {

static_assert(sizeof(wire::KeyText::public_key) == crypto_box_PUBLICKEYBYTES);
static_assert(sizeof(wire::KeyText::secret_key) == crypto_box_SECRETKEYBYTES);

constexpr mode_t kMode = 0600;

// Overwrites what it guards at the end of its scope.
class Wiped {
 public:
  explicit Wiped(std::string& text) : text_(text) {}
  Wiped(const Wiped&) = delete;
  Wiped& operator=(const Wiped&) = delete;
  ~Wiped() { sodium_memzero(text_.data(), text_.size()); }

 private:
  std::string& text_;
};

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

auto io_failure(const std::string& what, const std::string& path, const std::string& next) {
  const int cause = errno;
  const ErrorCode code = cause == ENOENT ? ErrorCode::not_found : ErrorCode::io;
  return fail(code, "could not " + what + " cluster key " + path + ": " + std::strerror(cause), next);
}

Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(ErrorCode::io, std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

// A new file with these bytes, durable. It did not exist before, and is not left behind half written.
Status create(const std::string& path, std::string_view bytes, const struct stat* owner) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode));
  if (!fd.valid() && errno == EEXIST)
    return fail(ErrorCode::refused, "could not make cluster key " + path + ": it exists");
  if (!fd.valid()) {
    const char* next =
        errno == ENOENT ? "make its directory first" : "choose a directory that you may write to";
    return io_failure("make", path, next);
  }
  // Another owner is kept where we may; who is not root owns the old file already.
  bool ok = owner == nullptr || ::geteuid() != 0 || ::fchown(fd.get(), owner->st_uid, owner->st_gid) == 0;
  ok = ok && write_all(fd.get(), bytes) && ::fsync(fd.get()) == 0;
  if (ok) return {};
  auto failure = io_failure("write", path, "see whether its disk is full");
  ::unlink(path.c_str());
  return failure;
}

Status flush_directory(const std::string& path) {
  UniqueFd fd(::open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0)
    return io_failure("make durable", path, "see whether its disk is full");
  return {};
}

// The whole file; its owner and mode.
Result<std::string> read_guarded(const std::string& path, struct stat& info) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid() && errno == ELOOP)
    return fail(ErrorCode::refused, "could not add to cluster key " + path + ": it is a link",
                "name the file that it leads to");
  if (!fd.valid()) return io_failure("open", path, "keygen FILE without --add makes a new one");
  if (::fstat(fd.get(), &info) != 0) return io_failure("open", path, "");
  if (!S_ISREG(info.st_mode))
    return fail(ErrorCode::refused, "could not add to cluster key " + path + ": it is no file");
  if ((info.st_mode & 077) != 0)
    return fail(ErrorCode::refused, "could not add to cluster key " + path + ": others may read it",
                "chmod 600 it, and make a new key where somebody may have done so");
  std::string text(wire::kKeyFileBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_failure("read", path, "");
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  text.resize(size);
  return text;
}

std::string new_key_file() {
  std::vector<wire::KeyText> keys(1);
  crypto_box_keypair(keys[0].public_key.data(), keys[0].secret_key.data());
  std::string text = wire::render_key_file(keys);
  sodium_memzero(keys.data(), sizeof keys[0]);
  return text;
}

Status make(const std::string& path) {
  std::string text = new_key_file();
  const Wiped wiped(text);
  auto made = create(path, text, nullptr);
  if (!made && made.error().code == ErrorCode::refused)
    made.error().next = "name another file; or give --add to append a new key to it, for rotation";
  if (!made) return made;
  return flush_directory(path);
}

// Appends a pair and keeps what stands there, comments too. Answers how many pairs there are now.
Result<std::size_t> add(const std::string& path) {
  struct stat info {};
  auto text = read_guarded(path, info);
  if (!text) return fail(text.error());
  const Wiped wiped(*text);
  const auto keys = wire::parse_key_file(*text);
  if (!keys)
    return fail(keys.error().code, "could not add to cluster key " + path + ": " + keys.error().message,
                keys.error().next);
  if (keys->size() == wire::kKeyPairs)
    return fail(
        ErrorCode::limit,
        "could not add to cluster key " + path + ": it holds " + std::to_string(keys->size()) + " keys",
        "remove those that no agent uses any more");
  std::string made = new_key_file();
  const Wiped made_wiped(made);
  std::string whole;
  whole.reserve(text->size() + made.size() + 1);  // grown in place: no copy is left behind in freed memory
  const Wiped whole_wiped(whole);
  whole += *text;
  if (whole.back() != '\n') whole += '\n';
  whole += std::string_view(made).substr(made.find('\n') + 1);  // without the head
  if (whole.size() > wire::kKeyFileBytes)
    return fail(ErrorCode::limit,
                "could not add to cluster key " + path + ": it would be longer than " +
                    std::to_string(wire::kKeyFileBytes) + " bytes",
                "shorten its comments");
  const std::string beside = path + ".new";
  if (auto created = create(beside, whole, &info); !created) {
    if (created.error().code == ErrorCode::refused)
      created.error().next = "another keygen is at work; when none is, one was killed: remove that file";
    return fail(created.error());
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) {
    auto failure = io_failure("replace", path, "");
    ::unlink(beside.c_str());
    return failure;
  }
  if (auto flushed = flush_directory(path); !flushed) return fail(flushed.error());
  return keys->size() + 1;
}

}  // namespace

int cmd_keygen(Session& session, const KeygenOptions& options) {
  if (sodium_init() < 0)
    return session.report(
        Failure(Error{ErrorCode::internal, "could not make a key: the system gives no random bytes", ""}));
  std::size_t pairs = 1;
  if (options.add) {
    const auto added = add(options.file);
    if (!added) return session.report(Failure(added.error()));
    pairs = *added;
  } else if (const auto made = make(options.file); !made) {
    return session.report(Failure(made.error()));
  }
  session.show(Json{{"file", options.file}, {"keys", pairs}}, [] { return std::string(); });
  if (options.add) {
    session.note("added key " + std::to_string(pairs) + " to " + options.file + ". To change over to it:");
    session.note(
        "1. copy the file to all hosts (mode 0600) and run systemctl reload dtraind on each: all accept the "
        "new key");
    session.note("2. move the last line to the top on all hosts and reload: it serves now");
    session.note("3. when no agent is left that missed this, remove the old line on all hosts and reload");
  } else {
    session.note("made " + options.file + ", mode 0600. Who holds it is a member of the cluster.");
    session.note(
        "copy it to all hosts, mode 0600 and owned by the agent's user (scp -p), name it as network.keyFile "
        "or "
        "--key-file, and start dtraind");
  }
  return kDone;
}

}  // namespace dtrain::ctl
