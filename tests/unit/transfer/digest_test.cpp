#include "common/transfer/digest.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sodium.h>

#include "common/base/rng.h"
#include "common/transfer/crc32c.h"
#include "tests/unit/transfer/bundle_writer.h"

namespace dtrain::transfer {
namespace {

std::string random_bytes(Rng& rng, std::uint64_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(rng.below(256));
  return bytes;
}

TEST(Digest, KnownVectors) {
  Sha256 sha;
  sha.update("abc");
  EXPECT_EQ(sha.finish_hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256().finish_hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(blake2b_hex(""), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(crc32c_mask(0), kCrcMaskDelta);
}

// Three implementations of one function: the processor's, ours, and libsodium's.
RC_GTEST_PROP(Digest, Sha256IsTheSameHoweverItIsCutAndComputed, (std::uint64_t seed)) {
  Rng rng(seed);
  const std::string bytes = random_bytes(rng, rng.below(1000));
  unsigned char expected[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(expected, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  const std::string hex = to_hex({reinterpret_cast<const char*>(expected), sizeof expected});
  for (Sha256 sha : {Sha256(), Sha256::portable()}) {
    for (std::size_t at = 0; at < bytes.size();) {
      const auto size = static_cast<std::size_t>(rng.below(bytes.size() - at + 1));
      sha.update(std::string_view(bytes).substr(at, size));
      at += size;
    }
    RC_ASSERT(sha.finish_hex() == hex);
  }
}

RC_GTEST_PROP(Digest, Crc32cIsTheSameHoweverItIsCutAndComputed, (std::uint64_t seed)) {
  Rng rng(seed);
  const std::string bytes = random_bytes(rng, rng.below(100));
  const auto cut = static_cast<std::size_t>(rng.below(bytes.size() + 1));
  const std::string_view view = bytes;
  const auto whole = crc32c(bytes);
  RC_ASSERT(crc32c_extend(crc32c(view.substr(0, cut)), view.substr(cut)) == whole);
  RC_ASSERT(test::plain_crc32c(bytes) == whole);
}

}  // namespace
}  // namespace dtrain::transfer
