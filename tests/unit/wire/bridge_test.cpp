// What an agent and a dtrainctl on another machine say to each other, and the client's key file.
#include "common/wire/bridge.h"

#include <gtest/gtest.h>

#include "common/wire/client_key_file.h"

namespace dtrain::wire {
namespace {

TEST(Bridge, BytesOnTheWire) {
  const auto encoded = [](BridgeWord word, std::string bytes = "", std::uint32_t count = 0) {
    return encode_bridge({word, std::move(bytes), count});
  };
  EXPECT_EQ(encoded(BridgeWord::hello, "", 1), "\x01\x01");
  EXPECT_EQ(encoded(BridgeWord::data, "abc"),
            "\x02"
            "abc");
  EXPECT_EQ(encoded(BridgeWord::allow, "", 0x01020304), "\x03\x04\x03\x02\x01");
  EXPECT_EQ(encoded(BridgeWord::ping), "\x04");
  EXPECT_EQ(encoded(BridgeWord::pong), "\x05");
  EXPECT_EQ(encoded(BridgeWord::end), "\x06");
}

TEST(Bridge, DecodesWhatItEncodes) {
  for (const BridgeMessage& message : {BridgeMessage{BridgeWord::hello, "", 200},
                                       {BridgeWord::data, std::string(kBridgeChunkBytes, '\0'), 0},
                                       {BridgeWord::allow, "", 0xfffffffe},
                                       {BridgeWord::ping, "", 0},
                                       {BridgeWord::pong, "", 0},
                                       {BridgeWord::end, "", 0}}) {
    const auto decoded = decode_bridge(encode_bridge(message));
    ASSERT_TRUE(decoded) << decoded.error().text();
    EXPECT_EQ(*decoded, message);
  }
}

TEST(Bridge, RefusesEverythingElse) {
  using namespace std::string_literals;
  for (const std::string& bytes : {""s, "\0"s, "\x07"s, "\xff"s, "\x01"s, "\x01\x01\x01"s, "\x02"s, "\x03\x01\x02\x03"s, "\x03\0\0\0\0"s,
                                   "\x03\1\0\0\0\0"s, "\x04x"s, "\x05x"s, "\x06x"s, "\x02"s + std::string(kBridgeChunkBytes + 1, 'x')}) {
    const auto decoded = decode_bridge(bytes);
    ASSERT_FALSE(decoded) << bytes.size();
    EXPECT_EQ(decoded.error().code, ErrorCode::invalid);
    EXPECT_FALSE(decoded.error().message.empty());
  }
}

KeyBytes key(std::uint8_t first) {
  KeyBytes bytes{};
  bytes[0] = first;
  bytes[31] = 0xab;
  return bytes;
}

TEST(ClientKeyFile, ReadsWhatItWrites) {
  const ClientKeyText keys{{key(1), key(2)}, {key(3), key(4)}};
  const std::string text = render_client_key_file(keys);
  EXPECT_NE(text.find("\ndtrain-client-v1 " + key_text(key(1)) + " " + key_text(key(2)) + "\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\ndtrain-agents-v1 " + key_text(key(3)) + "\n"), std::string::npos) << text;
  const auto read = parse_client_key_file(text + "\n  # mine\r\n");
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->own.public_key, key(1));
  EXPECT_EQ(read->own.secret_key, key(2));
  EXPECT_EQ(read->agents, keys.agents);
}

TEST(ClientKeyFile, SaysWhatIsWrongAndNoSecret) {
  const std::string one = key_text(key(1)), two = key_text(key(2)), three = key_text(key(3));
  const std::string own = "dtrain-client-v1 " + one + " " + two + "\n", agents = "dtrain-agents-v1 " + three + "\n";
  std::string many = own;
  for (std::uint8_t i = 0; i <= kKeyPairs; ++i) many += "dtrain-agents-v1 " + key_text(key(static_cast<std::uint8_t>(10 + i))) + "\n";
  const std::pair<std::string, const char*> wrong[] = {
      {"", "it holds no pair of its own"},
      {own, "it holds no key of agents"},
      {agents, "it holds no pair of its own"},
      {own + own + agents, "line 2: a second pair of its own"},
      {own + agents + agents, "line 3: the same key a second time"},
      {many, "more than 8 keys of agents"},
      {"dtrain-key-v1 " + one + " " + two + "\n", "line 1: it is the key of a cluster"},
      {"dtrain-client-v2 " + one + " " + two + "\n", "line 1: begins neither with"},
      {"dtrain-client-v1 " + one + " " + two.substr(1) + "\n" + agents, "line 1: the secret key is not of 64"},
      {"dtrain-client-v1 x " + two + "\n" + agents, "line 1: the public key is not of 64"},
      {own + "dtrain-agents-v1 " + three + " " + two + "\n", "line 2: has more than its keys"},
      {std::string(kKeyFileBytes + 1, '#'), "longer than"}};
  for (const auto& [text, why] : wrong) {
    const auto read = parse_client_key_file(text);
    ASSERT_FALSE(read) << why;
    EXPECT_EQ(read.error().code, ErrorCode::damaged);
    EXPECT_NE(read.error().message.find(why), std::string::npos) << read.error().message;
    EXPECT_EQ(read.error().text().find(two.substr(1)), std::string::npos);
  }
}

TEST(KeyText, BothCasesAreRead) {
  EXPECT_EQ(parse_key("AB" + std::string(62, '0')), parse_key("ab" + std::string(62, '0')));
  EXPECT_EQ(parse_key(key_text(key(7))), key(7));
  for (const std::string& bad : {std::string(), std::string(63, '0'), std::string(65, '0'), std::string(63, '0') + "g"})
    EXPECT_FALSE(parse_key(bad)) << bad;
}

}  // namespace
}  // namespace dtrain::wire
