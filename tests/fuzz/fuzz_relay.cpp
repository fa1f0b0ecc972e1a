// Hostile bytes from another agent about relayed streams. The first byte chooses: 132 to 134 a message of that type; 0 a
// conversation: one end of a stream is told one piece of data after the other, each [what, time, length in two bytes, bytes].
// Seeds: tests/fuzz/make_corpus.py.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "common/relay/stream_end.h"

namespace dtrain::test {
namespace {

constexpr std::size_t kWords = 200;  // of one conversation
enum What : unsigned { kData, kOpenedAgain, kWrite, kRead, kWhats };

void check_message(std::uint16_t type, std::string_view input) {
  const auto decoded = wire::decode_relay(type, input);
  if (!decoded) {
    CHECK(!decoded.error().message.empty());
    return;
  }
  CHECK(wire::type_of(*decoded) == type);
  const std::string encoded = wire::encode_relay(*decoded);
  CHECK(encoded.size() <= wire::kRelayMessageBytes);
  const auto again = wire::decode_relay(type, encoded);
  CHECK(again.has_value() && *again == *decoded);
}

void converse(std::string_view input) {
  Instant now{1000s};
  relay::StreamEnd end(now, 7, relay::kWindowBytes);
  std::uint64_t written = 0;
  for (std::size_t count = 0; count < kWords && input.size() >= 4; ++count) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(input[i]); };
    const std::size_t length = std::min<std::size_t>(at(2) << 8 | at(3), input.size() - 4);
    const std::string_view bytes = input.substr(4, length);
    now += Duration(std::int64_t{20'000'000} * at(1));
    switch (at(0) % kWhats) {
      case kData:
        if (const auto data = wire::decode_relay(wire::kFirstRelayType + 1, bytes)) end.receive(now, std::get<wire::RelayData>(*data));
        break;
      case kOpenedAgain: end.opened_again(now); break;
      case kWrite:
        end.write(bytes);
        written += length;
        break;
      case kRead: end.consume(std::min(end.readable().size(), length)); break;
    }
    CHECK(end.readable().size() <= relay::kWindowBytes && end.unacknowledged() <= written);
    std::size_t said = 0;
    while (const auto message = end.next(now)) {
      const auto& data = std::get<wire::RelayData>(*message);
      CHECK(data.bytes.size() <= wire::kRelaySegmentBytes && data.offset + data.bytes.size() <= written);
      CHECK(++said <= written / wire::kRelaySegmentBytes + 3);  // it comes to an end
    }
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
  else check_message(data[0], input);
  return 0;
}
