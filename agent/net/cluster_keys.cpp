#include "agent/net/cluster_keys.h"

#include <sodium.h>
#include <unistd.h>

#include <initializer_list>
#include <string_view>

#include "agent/net/private_file.h"
#include "common/base/check.h"
#include "common/wire/key_file.h"

namespace dtrain::net {
namespace {

// Part of the derivations: they never change.
constexpr std::string_view kNodeKeyLabel = "dtrain-node-key-v1", kDoorKeyLabel = "dtrain-door-key-v1";
constexpr std::size_t kPrintBytes = 8;  // 16 hex digits
constexpr const char* kCopyNext = "make one with `dtrainctl keygen FILE` and copy it to all hosts";

static_assert(sizeof(CurveKey) == crypto_box_PUBLICKEYBYTES && sizeof(CurveKey) == crypto_box_SECRETKEYBYTES);
static_assert(sizeof(CurveKey) == crypto_generichash_BYTES);

auto unreadable(const std::string& path, ErrorCode code, const std::string& cause, const std::string& next) {
  return fail(code, "could not read cluster key " + path + ": " + cause, next);
}

KeyPair derive(std::string_view label, std::initializer_list<std::uint64_t> numbers, const KeyPair& cluster) {
  std::string input(label);
  for (const std::uint64_t number : numbers)
    for (int shift = 56; shift >= 0; shift -= 8) input.push_back(static_cast<char>(number >> shift));
  KeyPair pair;
  CHECK(::crypto_generichash(pair.secret_key.data(), pair.secret_key.size(), reinterpret_cast<const unsigned char*>(input.data()),
                             input.size(), cluster.secret_key.data(), cluster.secret_key.size()) == 0);
  // Any 32 bytes are a secret of X25519 (it clamps them itself): this cannot fail.
  CHECK(::crypto_scalarmult_base(pair.public_key.data(), pair.secret_key.data()) == 0);
  return pair;
}

}  // namespace

Result<ClusterKeys> read_key_file(const std::string& path) {
  auto text = read_private_file(path, "cluster key", kCopyNext, ::geteuid());
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
      return unreadable(path, ErrorCode::damaged, "the public key of pair " + std::to_string(i + 1) + " does not belong to its secret",
                        "copy the file again from a host where it works");
    keys.pairs.push_back(pair);
  }
  return keys;
}

std::string new_key_file() {
  CHECK(::sodium_init() >= 0);
  std::vector<wire::KeyText> keys(1);
  CHECK(::crypto_box_keypair(keys[0].public_key.data(), keys[0].secret_key.data()) == 0);
  std::string text = wire::render_key_file(keys);
  ::sodium_memzero(keys.data(), sizeof keys[0]);
  return text;
}

KeyPair node_key(const KeyPair& cluster, const MemberId& node) { return derive(kNodeKeyLabel, {node.high, node.low}, cluster); }

KeyPair door_key(const KeyPair& cluster) { return derive(kDoorKeyLabel, {}, cluster); }

std::string key_print(const CurveKey& public_key) {
  std::array<std::uint8_t, crypto_generichash_BYTES> hash{};
  CHECK(::crypto_generichash(hash.data(), hash.size(), public_key.data(), public_key.size(), nullptr, 0) == 0);
  std::string print;
  for (std::size_t i = 0; i < kPrintBytes; ++i) {
    print.push_back("0123456789abcdef"[hash[i] >> 4]);
    print.push_back("0123456789abcdef"[hash[i] & 15]);
  }
  return print;
}

}  // namespace dtrain::net
