// Hostile bytes on the way between an agent and a dtrainctl on another machine. The first byte chooses: 1 a message; 2 a client's key
// file; 0 a conversation: one end is told one message after the other, each [what, time, length in two bytes, bytes].
// Seeds: tests/fuzz/make_corpus.py.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "common/relay/bridge_end.h"
#include "common/wire/client_key_file.h"

namespace dtrain::test {
namespace {

constexpr std::size_t kWords = 200;  // of one conversation
enum What : unsigned { kMessage, kSay, kHandOn, kWhats };

void check_message(std::string_view input) {
  const auto decoded = wire::decode_bridge(input);
  if (!decoded) {
    CHECK(!decoded.error().message.empty());
    return;
  }
  CHECK(wire::encode_bridge(*decoded) == input);
}

void check_key_file(std::string_view input) {
  const auto keys = wire::parse_client_key_file(input);
  if (!keys) {
    CHECK(!keys.error().message.empty());
    return;
  }
  CHECK(!keys->agents.empty() && keys->agents.size() <= wire::kKeyPairs);
  const auto again = wire::parse_client_key_file(wire::render_client_key_file(*keys));
  CHECK(again.has_value() && again->agents == keys->agents && again->own.public_key == keys->own.public_key &&
        again->own.secret_key == keys->own.secret_key);
}

void converse(std::string_view input) {
  Instant now{1000s};
  relay::BridgeEnd end(now);
  std::size_t unanswered = 0;  // bytes said that were not allowed again
  for (std::size_t count = 0; count < kWords && input.size() >= 4; ++count) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(input[i]); };
    const std::size_t length = std::min<std::size_t>(at(2) << 8 | at(3), input.size() - 4);
    const std::string_view bytes = input.substr(4, length);
    now += Duration(std::int64_t{50'000'000} * at(1));
    switch (at(0) % kWhats) {
      case kMessage:
        if (const auto message = wire::decode_bridge(bytes)) {
          const bool before = end.ended();
          if (!end.receive(now, *message)) return;
          if (message->word == wire::BridgeWord::allow && !before) {
            CHECK(message->count <= unanswered);
            unanswered -= message->count;
          }
          CHECK(!end.silent(now));
        }
        break;
      case kSay:
        if (const std::size_t room = std::min(end.room(), length); room > 0) unanswered += end.say(bytes.substr(0, room)).bytes.size();
        break;
      case kHandOn: end.delivered(std::min(end.waiting().size(), length)); break;
    }
    CHECK(end.waiting().size() <= relay::kBridgeWindowBytes && unanswered <= relay::kBridgeWindowBytes);
    CHECK(end.room() <= relay::kBridgeWindowBytes - unanswered);
    for (int said = 0; end.next(now); ++said) CHECK(said < 3);  // an allow, a pong, a ping
    CHECK(end.deadline() > now || end.silent(now));
    input.remove_prefix(4 + length);
  }
}

}  // namespace
}  // namespace dtrain::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain::test;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 0) converse(input);
  if (data[0] == 1) check_message(input);
  if (data[0] == 2) check_key_file(input);
  return 0;
}
