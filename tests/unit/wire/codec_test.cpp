#include "common/wire/codec.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <limits>

#include "common/job/job_spec.h"
#include "tests/unit/wire/samples.h"

namespace dtrain::test {
namespace {

using wire::decode;
using wire::encode;

enum class Colour : unsigned char { red, green };
constexpr Colour enum_last(Colour) { return Colour::green; }

struct Point {
  std::int32_t x = 0;
  std::uint8_t y = 7;
  template <class V>
  void fields(V& v) {
    v("x", x);
    v("y", y);
  }
};
struct Drawing {
  std::string title;
  Colour colour = Colour::red;
  std::vector<Point> points;
  std::map<std::string, Point> named;
  std::map<std::uint32_t, std::string> numbered;
  std::optional<std::int64_t> scale;
  Duration pause{0};
  bool open = false;
  template <class V>
  void fields(V& v) {
    v("title", title);
    v("colour", colour);
    v("points", points);
    v("named", named);
    v("numbered", numbered);
    v("scale", scale);
    v("pause", pause);
    v("open", open);
  }
};

std::string bytes(std::initializer_list<int> values) {
  std::string out;
  for (const int value : values) out.push_back(static_cast<char>(value));
  return out;
}

template <class T>
std::string decode_error(const std::string& encoded) {
  const auto decoded = decode<T>(encoded);
  return decoded ? "" : decoded.error().message;
}

TEST(Codec, GoldenBytes) {
  EXPECT_EQ(encode(Point{-1, 200}), bytes({0x82, 0xa1, 'x', 0xff, 0xa1, 'y', 0xcc, 200}));
  EXPECT_EQ(encode(std::optional<bool>{}), bytes({0xc0}));
  EXPECT_EQ(encode(std::vector<bool>::size_type{65536}), bytes({0xce, 0, 1, 0, 0}));
  EXPECT_EQ(encode(std::string("hi")), bytes({0xa2, 'h', 'i'}));
}

TEST(Codec, UnknownKeysAreSkippedAndMissingOnesKeepTheirDefault) {
  const auto point = decode<Point>(bytes({0x82, 0xa1, 'z', 0x91, 0xc0, 0xa1, 'x', 5}));
  ASSERT_TRUE(point);
  EXPECT_EQ(point->x, 5);
  EXPECT_EQ(point->y, 7);
}

TEST(Codec, KeysInAnyOrder) {
  const auto point = decode<Point>(bytes({0x82, 0xa1, 'y', 1, 0xa1, 'x', 2}));
  ASSERT_TRUE(point);
  EXPECT_EQ(point->x, 2);
  EXPECT_EQ(point->y, 1);
}

TEST(Codec, ErrorsNameTheField) {
  EXPECT_NE(decode_error<Point>(bytes({0x81, 0xa1, 'y', 0xcd, 1, 0})).find("y: number too large"), std::string::npos);
  EXPECT_NE(decode_error<Point>(bytes({0x81, 0xa1, 'y', 0xff})).find("y: negative number"), std::string::npos);
  EXPECT_NE(decode_error<Point>(bytes({0x81, 0xa1, 'x', 0xa0})).find("x: expected a number"), std::string::npos);
  EXPECT_NE(decode_error<Point>(bytes({0x90})).find("expected a map"), std::string::npos);
  std::string drawing = bytes({0x81, 0xa6}) + "points" + bytes({0x92, 0x80, 0x81, 0xa1, 'x', 0xc3});
  EXPECT_NE(decode_error<Drawing>(drawing).find("points.1.x: expected a number"), std::string::npos);
  drawing = bytes({0x81, 0xa6}) + "colour" + bytes({2});
  EXPECT_NE(decode_error<Drawing>(drawing).find("colour: unknown value"), std::string::npos);
}

TEST(Codec, HostileSizesCostNothing) {
  for (const auto& hostile :
       {bytes({0xdd, 0xff, 0xff, 0xff, 0xff}), bytes({0xdf, 0xff, 0xff, 0xff, 0xff}), bytes({0xdb, 0xff, 0xff, 0xff, 0xff}),
        bytes({0xc6, 0xff, 0xff, 0xff, 0xff}), bytes({0xc9, 0xff, 0xff, 0xff, 0xff, 1})})
    EXPECT_FALSE(decode<Drawing>(hostile));
  EXPECT_FALSE(decode<Drawing>(std::string(1000, '\x91')));  // nested
  EXPECT_FALSE(decode<Drawing>(std::string()));
  EXPECT_FALSE(decode<Point>(encode(Point{}) + "x"));  // bytes behind the end
  EXPECT_FALSE(decode<Point>(encode(Point{}), {.bytes = 3}));
}

// The same struct as a later version of it, with a field and a value more.
enum class LaterColour : unsigned char { red, green, blue };
constexpr LaterColour enum_last(LaterColour) { return LaterColour::blue; }
constexpr std::uint32_t since_version(LaterColour colour) { return colour == LaterColour::blue ? 3 : 1; }
struct LaterPoint {
  std::int32_t x = 0;
  std::uint8_t y = 7;
  std::vector<LaterColour> colours;
  template <class V>
  void fields(V& v) {
    v("x", x);
    v("y", y);
    v("colours", colours, wire::Since{2});
  }
};

TEST(Codec, AnEmptyLaterFieldIsNotWrittenAndAFullOneIsAnErrorToWhoIsStrict) {
  EXPECT_EQ(encode(LaterPoint{}), encode(Point{}));
  EXPECT_EQ(wire::needed_version(LaterPoint{}), 1u);
  LaterPoint red, blue;
  red.colours = {LaterColour::red};
  blue.colours = {LaterColour::red, LaterColour::blue};
  EXPECT_EQ(wire::needed_version(red), 2u);
  EXPECT_EQ(wire::needed_version(std::map<std::string, LaterPoint>{{"a", red}, {"b", blue}}), 3u);
  EXPECT_TRUE(decode<Point>(encode(red)));
  const auto strict = wire::decode_strictly<Point>(encode(red));
  ASSERT_FALSE(strict);
  EXPECT_NE(strict.error().message.find("unknown field colours"), std::string::npos) << strict.error().text();
  EXPECT_TRUE(wire::decode_strictly<Point>(encode(LaterPoint{})));
  EXPECT_EQ(encode(wire::decode_strictly<LaterPoint>(encode(blue)).value()), encode(blue));
}

// What is_empty() decides without encoding is the same as for the bytes.
template <class T>
void expect_empty_as_its_bytes(const T& full) {
  EXPECT_TRUE(wire::detail::is_empty(T{}));
  ASSERT_NE(encode(full), encode(T{}));
  EXPECT_FALSE(wire::detail::is_empty(full)) << typeid(T).name();
}

TEST(Codec, EmptyIsWhatHasTheBytesOfItsTypesDefault) {
  expect_empty_as_its_bytes(true);
  expect_empty_as_its_bytes(-1);
  expect_empty_as_its_bytes(LaterColour::green);
  expect_empty_as_its_bytes(Duration(1));
  expect_empty_as_its_bytes(Instant(Duration(1)));
  expect_empty_as_its_bytes(WallTime(WallTime::duration(1)));
  expect_empty_as_its_bytes(std::string("a"));
  expect_empty_as_its_bytes(std::vector<int>{0});
  expect_empty_as_its_bytes(std::deque<int>{0});
  expect_empty_as_its_bytes(std::set<int>{0});
  expect_empty_as_its_bytes(std::map<int, int>{{0, 0}});
  expect_empty_as_its_bytes(std::optional<int>(0));
  expect_empty_as_its_bytes(LaterPoint{0, 8, {}});
  EXPECT_EQ(encode(std::deque<int>{1, 2}), encode(std::vector<int>{1, 2}));
  EXPECT_EQ(wire::decode<std::deque<int>>(encode(std::vector<int>{1, 2})).value(), (std::deque<int>{1, 2}));
}

TEST(Codec, AKeyThatComesTwiceIsAnErrorToWhoIsStrict) {
  wire::Writer w;
  w.map(2);
  w.text("x"), w.natural(1), w.text("x"), w.natural(2);
  const std::string twice = w.take();
  EXPECT_TRUE(decode<Point>(twice));
  EXPECT_FALSE(wire::decode_strictly<Point>(twice));
}

TEST(Codec, ExtremesOfIntegersSurvive) {
  for (const auto value :
       {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), std::int64_t{-1}, std::int64_t{0}})
    EXPECT_EQ(decode<std::int64_t>(encode(value)).value(), value);
  const auto most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(decode<std::uint64_t>(encode(most)).value(), most);
  EXPECT_FALSE(decode<std::int64_t>(encode(most)));
}

RC_GTEST_PROP(Codec, EveryValueSurvivesARoundTrip, (std::uint64_t seed)) {
  const auto drawing = Sampler(seed).sample<Drawing>();
  const std::string encoded = encode(drawing);
  const auto decoded = decode<Drawing>(encoded);
  RC_ASSERT(decoded.has_value());
  RC_ASSERT(encode(*decoded) == encoded);
  const auto spec = Sampler(seed).sample<job::JobSpec>();
  const auto again = decode<job::JobSpec>(encode(spec));
  RC_ASSERT(again.has_value());
  RC_ASSERT(encode(*again) == encode(spec));
}

RC_GTEST_PROP(Codec, DamagedBytesNeverDoMoreThanFail, (std::uint64_t seed)) {
  Rng rng(seed);
  std::string encoded = encode(Sampler(seed).sample<Drawing>());
  for (int i = 0; i < 3; ++i) encoded[rng.below(encoded.size())] = static_cast<char>(rng.below(256));
  encoded.resize(encoded.size() - rng.below(2) * rng.below(encoded.size()));
  const auto decoded = decode<Drawing>(encoded);
  if (!decoded) {
    RC_ASSERT(decoded.error().code == ErrorCode::damaged);
  } else {
    RC_ASSERT(decode<Drawing>(encode(*decoded)).has_value());
  }
}

}  // namespace
}  // namespace dtrain::test
