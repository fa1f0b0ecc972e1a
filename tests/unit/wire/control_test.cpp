#include "common/wire/control.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/unit/wire/samples.h"

namespace dtrain::test {
namespace {

using namespace wire;

std::string length_prefix(std::uint32_t size) {
  std::string out;
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(size >> shift));
  return out;
}

// The bytes of a released message never change. After an intended addition of a field: run once with
// DTRAIN_UPDATE_GOLDEN=1 and say in the commit why an old peer still understands it.
struct GoldenCheck {
  std::filesystem::path directory = std::filesystem::path(DTRAIN_SOURCE_DIR) / "tests/golden/control";
  bool update = std::getenv("DTRAIN_UPDATE_GOLDEN") != nullptr;
  std::size_t count = 0;

  template <class T>
  void operator()(const char* name) {
    constexpr std::uint64_t kSeed = 1;
    ++count;
    const auto path = directory / (std::string(name) + ".msgpack");
    const std::string encoded = encode(Sampler(kSeed).sample<T>());
    if (update) std::ofstream(path, std::ios::binary) << encoded;
    std::ifstream in(path, std::ios::binary);
    const std::string golden{std::istreambuf_iterator<char>(in), {}};
    EXPECT_TRUE(encoded == golden) << name << " is encoded differently from " << path;
    const auto decoded = decode<T>(golden);
    ASSERT_TRUE(decoded) << name << ": " << decoded.error().text();
    EXPECT_TRUE(encode(*decoded) == golden) << name;
  }
};

TEST(Control, EveryMessageHasItsGoldenBytes) {
  GoldenCheck check;
  for_each_control_type(check);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(check.directory)) files += entry.is_regular_file();
  EXPECT_EQ(files, check.count);
}

TEST(Control, GoldenFrame) {
  const std::string expected(
      "\x10\0\0\0\x85\xa1"
      "f\x01\xa1"
      "t\x13\xa1"
      "r\x05\xa1"
      "l\xc3\xa1"
      "p\xa0",
      20);
  Message message;
  message.type = MessageType::query_tasks;
  message.request = 5;
  const std::string framed = frame(message);
  EXPECT_EQ(framed, expected);
  Deframer deframer;
  deframer.feed(framed);
  const auto read = deframer.next();
  ASSERT_TRUE(read && *read);
  EXPECT_EQ((*read)->type, MessageType::query_tasks);
  EXPECT_EQ((*read)->request, 5u);
}

struct RoundTrip {
  std::uint64_t seed;
  template <class T>
  void operator()(const char* name) {
    const std::string encoded = encode(Sampler(seed).sample<T>());
    const auto decoded = decode<T>(encoded);
    if (!decoded) RC_FAIL(std::string(name) + ": " + decoded.error().text());
    RC_ASSERT(encode(*decoded) == encoded);
  }
};
RC_GTEST_PROP(Control, EveryMessageSurvivesARoundTrip, (std::uint64_t seed)) { for_each_control_type(RoundTrip{seed}); }

RC_GTEST_PROP(Control, FramesSurviveAnyCutting, (std::uint64_t seed)) {
  Rng rng(seed);
  Sampler sampler(seed);
  std::vector<Message> sent;
  std::string stream;
  for (std::uint64_t n = rng.below(8); n > 0; --n) {
    auto message = sampler.sample<Message>();
    message.format = kControlFormat;
    stream += frame(message);
    sent.push_back(std::move(message));
  }
  Deframer deframer;
  std::vector<Message> received;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t size = std::min<std::size_t>(1 + rng.below(20), stream.size() - at);
    deframer.feed(std::string_view(stream).substr(at, size));
    at += size;
    for (;;) {
      auto message = deframer.next();
      RC_ASSERT(message.has_value());
      if (!*message) break;
      received.push_back(std::move(**message));
    }
  }
  RC_ASSERT(received.size() == sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) RC_ASSERT(encode(received[i]) == encode(sent[i]));
  RC_ASSERT(deframer.buffered() == 0u);
}

TEST(Control, HalfAFrameWaits) {
  const std::string framed = frame(make_message(MessageType::query_jobs, 1, JobsRequest{}));
  Deframer deframer;
  for (std::size_t i = 0; i + 1 < framed.size(); ++i) {
    deframer.feed(framed.substr(i, 1));
    const auto message = deframer.next();
    ASSERT_TRUE(message);
    EXPECT_FALSE(*message);
  }
  deframer.feed(framed.substr(framed.size() - 1));
  const auto message = deframer.next();
  ASSERT_TRUE(message && *message);
}

TEST(Control, AnnouncedLengthAboveTheLimitIsRefusedAtOnce) {
  Deframer deframer;
  deframer.feed(length_prefix(static_cast<std::uint32_t>(limits::kControlFrameBytes) + 1));
  const auto message = deframer.next();
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code, ErrorCode::limit);
  Deframer largest;
  largest.feed(length_prefix(static_cast<std::uint32_t>(limits::kControlFrameBytes)));
  EXPECT_TRUE(largest.next());
}

TEST(Control, JunkAndForeignFormatsAreErrors) {
  Deframer junk;
  junk.feed(length_prefix(4) + "junk");
  EXPECT_FALSE(junk.next());
  Deframer empty;
  empty.feed(length_prefix(0));
  EXPECT_FALSE(empty.next());
  Message foreign;
  foreign.format = kControlFormat + 1;
  Deframer other;
  other.feed(frame(foreign));
  const auto message = other.next();
  ASSERT_FALSE(message);
  EXPECT_EQ(message.error().code, ErrorCode::invalid);
}

TEST(Control, ErrorReplyCarriesEverything) {
  const auto reply = error_reply(Error{ErrorCode::not_found, "could not find job x", "list them"});
  ASSERT_EQ(reply.errors.size(), 1u);
  EXPECT_EQ(reply.errors[0].kind, "not-found");
  EXPECT_EQ(reply.errors[0].message, "could not find job x");
  EXPECT_EQ(reply.errors[0].next, "list them");
}

}  // namespace
}  // namespace dtrain::test
