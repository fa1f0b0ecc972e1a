#include "agent/net/client_keys.h"

#include <sodium.h>

#include "agent/net/private_file.h"
#include "common/wire/client_key_file.h"

namespace dtrain::net {
namespace {

constexpr const char* kWhat = "client key";
constexpr const char* kMakeNext = "have an administrator make one with dtrainctl keygen --client FILE";

}  // namespace

Result<ClientKeys> read_client_key_file(const std::string& path) {
  auto text = read_private_file(path, kWhat, kMakeNext);
  if (!text) return fail(text.error());
  auto parsed = wire::parse_client_key_file(*text);
  ::sodium_memzero(text->data(), text->size());
  const auto unreadable = [&](const Error& error) {
    return fail(error.code, std::string("could not read ") + kWhat + " " + path + ": " + error.message, error.next);
  };
  if (!parsed) return unreadable(parsed.error());
  ClientKeys keys{{parsed->own.public_key, parsed->own.secret_key}, std::move(parsed->agents)};
  ::sodium_memzero(&parsed->own.secret_key, sizeof parsed->own.secret_key);
  CurveKey expected{};
  if (::crypto_scalarmult_base(expected.data(), keys.own.secret_key.data()) != 0 || expected != keys.own.public_key)
    return unreadable({ErrorCode::damaged, "its public key does not belong to its secret", kMakeNext});
  return keys;
}

}  // namespace dtrain::net
