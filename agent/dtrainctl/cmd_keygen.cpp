// Makes the cluster's key file, or appends a pair to it; makes a client's key file, or updates it. The secret is only
// ever in a file of mode 0600: never on a terminal, in an argument or in a message.
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/base/small_file.h"
#include "agent/base/unique_fd.h"
#include "agent/dtrainctl/commands.h"
#include "agent/net/cluster_keys.h"
#include "common/json/answers.h"
#include "common/wire/client_key_file.h"
#include "common/wire/key_file.h"

namespace dtrain::ctl {
namespace {

static_assert(sizeof(wire::KeyText::public_key) == crypto_box_PUBLICKEYBYTES);
static_assert(sizeof(wire::KeyText::secret_key) == crypto_box_SECRETKEYBYTES);

constexpr mode_t kMode = 0600;

// Overwrites the guarded bytes at the end of its scope.
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

// The kind of a file, for messages: "cluster key", "client key".
struct KeyPath {
  const char* kind;
  std::string path;
  std::string text() const { return std::string(kind) + " " + path; }
};

auto io_failure(const std::string& what, const KeyPath& key, const std::string& next) {
  const int cause = errno;
  const ErrorCode code = cause == ENOENT ? ErrorCode::not_found : ErrorCode::io;
  return fail(code, "could not " + what + " " + key.text() + ": " + std::strerror(cause), next);
}

// Makes a new file with these bytes, durably. It must not exist before, and is not left behind half written.
Status create(const KeyPath& key, std::string_view bytes, const struct stat* owner) {
  UniqueFd fd(::open(key.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode));
  if (!fd && errno == EEXIST) return fail(ErrorCode::refused, "could not make " + key.text() + ": it exists");
  if (!fd) {
    const char* next = errno == ENOENT ? "make its directory first" : "choose a directory that you may write to";
    return io_failure("make", key, next);
  }
  // Keeps another owner if permitted; without root, the old file belongs to this user anyway.
  bool ok = owner == nullptr || ::geteuid() != 0 || ::fchown(fd.get(), owner->st_uid, owner->st_gid) == 0;
  ok = ok && write_all(fd.get(), bytes) && ::fsync(fd.get()) == 0;
  if (ok) return {};
  auto failure = io_failure("write", key, "see whether its disk is full");
  ::unlink(key.path.c_str());
  return failure;
}

Status flush_directory(const KeyPath& key) {
  UniqueFd fd(::open(directory_of(key.path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return io_failure("make durable", key, "see whether its disk is full");
  return {};
}

// The whole file; its owner and mode.
Result<std::string> read_guarded(const KeyPath& key, struct stat& info) {
  UniqueFd fd(::open(key.path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd && errno == ELOOP)
    return fail(ErrorCode::refused, "could not add to " + key.text() + ": it is a link", "name the file that it leads to");
  if (!fd) return io_failure("open", key, "keygen without --add makes a new one");
  if (::fstat(fd.get(), &info) != 0) return io_failure("open", key, "");
  if (!S_ISREG(info.st_mode)) return fail(ErrorCode::refused, "could not add to " + key.text() + ": it is no file");
  if ((info.st_mode & 077) != 0)
    return fail(ErrorCode::refused, "could not add to " + key.text() + ": others may read it",
                "chmod 600 it, and make a new key where somebody may have done so");
  std::string text(wire::kKeyFileBytes + 1, '\0');
  if (!read_into(fd.get(), text)) return io_failure("read", key, "");
  return text;
}

// Replaces the file in one step, with the same owner, so that readers see the old or the new one.
Status replace(const KeyPath& key, std::string_view bytes, const struct stat& info) {
  const KeyPath beside{key.kind, key.path + ".new"};
  if (auto created = create(beside, bytes, &info); !created) {
    if (created.error().code == ErrorCode::refused)
      created.error().next = "another keygen is at work; when none is, one was killed: remove that file";
    return created;
  }
  if (::rename(beside.path.c_str(), key.path.c_str()) != 0) {
    auto failure = io_failure("replace", key, "");
    ::unlink(beside.path.c_str());
    return failure;
  }
  return flush_directory(key);
}

Status make(const KeyPath& key) {
  std::string text = net::new_key_file();
  const Wiped wiped(text);
  auto made = create(key, text, nullptr);
  if (!made && made.error().code == ErrorCode::refused)
    made.error().next = "name another file; or give --add to append a new key to it, for rotation";
  if (!made) return made;
  return flush_directory(key);
}

// Appends a pair and keeps the content, comments included. Returns how many pairs there are now.
Result<std::size_t> add(const KeyPath& key) {
  struct stat info {};
  auto text = read_guarded(key, info);
  if (!text) return fail(text.error());
  const Wiped wiped(*text);
  const auto keys = wire::parse_key_file(*text);
  if (!keys) return fail(keys.error().code, "could not add to " + key.text() + ": " + keys.error().message, keys.error().next);
  if (keys->size() == wire::kKeyPairs)
    return fail(ErrorCode::limit, "could not add to " + key.text() + ": it holds " + std::to_string(keys->size()) + " keys",
                "remove those that no agent uses any more");
  std::string made = net::new_key_file();
  const Wiped made_wiped(made);
  std::string whole;
  whole.reserve(text->size() + made.size() + 1);  // so that growing leaves no copy in freed memory
  const Wiped whole_wiped(whole);
  whole += *text;
  if (whole.back() != '\n') whole += '\n';
  whole += std::string_view(made).substr(made.find('\n') + 1);  // without the head
  if (whole.size() > wire::kKeyFileBytes)
    return fail(ErrorCode::limit,
                "could not add to " + key.text() + ": it would be longer than " + std::to_string(wire::kKeyFileBytes) + " bytes",
                "shorten its comments");
  if (auto replaced = replace(key, whole, info); !replaced) return fail(replaced.error());
  return keys->size() + 1;
}

// ---- a client's: of the cluster it holds public keys alone

Result<std::vector<wire::KeyBytes>> agents_keys(const std::string& cluster_key) {
  auto cluster = net::read_key_file(cluster_key);
  if (!cluster) return fail(cluster.error());
  std::vector<wire::KeyBytes> keys;
  for (net::KeyPair& pair : cluster->pairs) {
    net::KeyPair door = net::door_key(pair);
    keys.push_back(door.public_key);
    sodium_memzero(&door.secret_key, sizeof door.secret_key);
    sodium_memzero(&pair.secret_key, sizeof pair.secret_key);
  }
  return keys;
}

// Returns the public key.
Result<wire::KeyBytes> make_client(const KeyPath& key, const std::string& cluster_key) {
  auto agents = agents_keys(cluster_key);
  if (!agents) return fail(agents.error());
  wire::ClientKeyText keys{{}, std::move(*agents)};
  crypto_box_keypair(keys.own.public_key.data(), keys.own.secret_key.data());
  std::string text = wire::render_client_key_file(keys);
  sodium_memzero(&keys.own.secret_key, sizeof keys.own.secret_key);
  const Wiped wiped(text);
  auto made = create(key, text, nullptr);
  if (!made && made.error().code == ErrorCode::refused)
    made.error().next = "name another file; or give --add to bring it up to date with the cluster's key";
  if (made) made = flush_directory(key);
  if (!made) return fail(made.error());
  return keys.own.public_key;
}

// Replaces the agents' keys by the cluster's present ones; the client's own pair stays.
Result<wire::KeyBytes> renew_client(const KeyPath& key, const std::string& cluster_key) {
  struct stat info {};
  auto text = read_guarded(key, info);
  if (!text) return fail(text.error());
  const Wiped wiped(*text);
  auto keys = wire::parse_client_key_file(*text);
  if (!keys) return fail(keys.error().code, "could not add to " + key.text() + ": " + keys.error().message, keys.error().next);
  auto agents = agents_keys(cluster_key);
  if (!agents) return fail(agents.error());
  keys->agents = std::move(*agents);
  std::string renewed = wire::render_client_key_file(*keys);
  sodium_memzero(&keys->own.secret_key, sizeof keys->own.secret_key);
  const Wiped renewed_wiped(renewed);
  if (auto replaced = replace(key, renewed, info); !replaced) return fail(replaced.error());
  return keys->own.public_key;
}

int keygen_client(Session& session, const KeygenOptions& options) {
  const KeyPath key{"client key", options.file};
  const auto made = options.add ? renew_client(key, options.cluster_key) : make_client(key, options.cluster_key);
  if (!made) return session.report(Failure(made.error()));
  const std::string public_key = wire::key_text(*made);
  session.show(Json{{"file", options.file}, {"public_key", public_key}}, [&] { return public_key + ": USER\n"; });
  if (options.add) {
    session.note("brought " + options.file + " up to date with " + options.cluster_key + "; its own key is the one that it was");
    return kDone;
  }
  session.note("made " + options.file + ", mode 0600. Who holds it is its user, at every agent that says so:");
  session.note(
      "put the line above, with the user's name for USER, under access.keys in dtraind.yaml of the agents, and run systemctl "
      "reload dtraind there");
  session.note("give the file to its user alone, for: dtrainctl --agent HOST:7402 --key-file FILE");
  return kDone;
}

}  // namespace

int cmd_keygen(Session& session, const KeygenOptions& options) {
  if (sodium_init() < 0)
    return session.report(Failure(Error{ErrorCode::internal, "could not make a key: the system gives no random bytes", ""}));
  if (options.client) return keygen_client(session, options);
  const KeyPath key{"cluster key", options.file};
  std::size_t pairs = 1;
  if (options.add) {
    const auto added = add(key);
    if (!added) return session.report(Failure(added.error()));
    pairs = *added;
  } else if (const auto made = make(key); !made) {
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
