#include "common/wire/key_file.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include "common/base/rng.h"

namespace dtrain::wire {
namespace {

KeyText key_of(std::uint64_t seed) {
  Rng rng(seed);
  KeyText key;
  for (auto* half : {&key.public_key, &key.secret_key})
    for (auto& byte : *half) byte = static_cast<std::uint8_t>(rng.below(256));
  return key;
}
std::string line(const std::string& public_key, const std::string& secret_key) {
  return "dtrain-key-v1 " + public_key + " " + secret_key + "\n";
}
const std::string kA(64, 'a'), kB(64, 'B'), kSecret = "5ec2e7" + std::string(58, '0');

TEST(KeyFile, TheFirstLineSaysWhatItIs) { EXPECT_TRUE(render_key_file({key_of(1)}).starts_with("# dtrain cluster key. ")); }

RC_GTEST_PROP(KeyFile, SurvivesARoundTrip, (std::uint64_t seed)) {
  std::vector<KeyText> keys;
  for (std::uint64_t i = 0; i <= seed % kKeyPairs; ++i) keys.push_back(key_of(seed + i));
  const auto read = parse_key_file(render_key_file(keys));
  RC_ASSERT(read.has_value());
  RC_ASSERT(read->size() == keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    RC_ASSERT((*read)[i].public_key == keys[i].public_key);
    RC_ASSERT((*read)[i].secret_key == keys[i].secret_key);
  }
}

TEST(KeyFile, CommentsBlanksAndLineEndsDoNotMatter) {
  const auto read = parse_key_file("# a\r\n\n  \t\n  dtrain-key-v1\t" + kA + "  " + kB + "\r\n#b\n" + "dtrain-key-v1 " + kB + " " + kA);
  ASSERT_TRUE(read) << read.error().text();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].public_key[0], 0xaa);
  EXPECT_EQ((*read)[0].secret_key[31], 0xbb);
}

TEST(KeyFile, MistakesNameTheirLineAndNoSecret) {
  const auto refused = [](const std::string& text, const char* why) {
    const auto read = parse_key_file(text);
    ASSERT_FALSE(read) << why;
    EXPECT_NE(read.error().message.find(why), std::string::npos) << read.error().text();
    EXPECT_EQ(read.error().text().find("5ec2e7"), std::string::npos) << read.error().text();
    EXPECT_EQ(read.error().code, ErrorCode::damaged);
    EXPECT_FALSE(read.error().next.empty());
  };
  refused("", "holds no key");
  refused("# only a comment\n", "holds no key");
  refused(line(kA, kSecret) + kSecret + "\n", "line 2: does not begin with dtrain-key-v1");
  refused("dtrain-key-v2 " + kA + " " + kSecret + "\n", "line 1: does not begin with");
  refused("\n" + line(kA.substr(1), kSecret), "line 2: the public key is not of 64 hexadecimal digits");
  refused(line(kA, kSecret + "0"), "line 1: the secret key is not of 64 hexadecimal digits");
  refused(line(kA, std::string(63, '0') + "g"), "line 1: the secret key");
  refused("dtrain-key-v1 " + kA + "\n", "line 1: the secret key");
  refused(line(kA, kA + " " + kSecret), "line 1: has more than");
  refused(line(kA, kB) + line(kA, kSecret), "line 2: the same key a second time");
  refused(std::string(kKeyFileBytes + 1, '#'), "longer than 16384 bytes");
  refused(
      "\x7f"
      "ELF",
      "line 1: does not begin");
  std::vector<KeyText> many;
  for (std::uint64_t i = 0; i <= kKeyPairs; ++i) many.push_back(key_of(i));
  refused(render_key_file(many), "line 10: more than 8 keys");
}

}  // namespace
}  // namespace dtrain::wire
