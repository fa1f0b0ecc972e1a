#include "common/transfer/tf_bundle.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "common/base/rng.h"
#include "common/transfer/byte_reader.h"
#include "common/transfer/leveldb_table.h"
#include "tests/unit/transfer/bundle_writer.h"

namespace dtrain::test {
namespace {

using namespace transfer;

std::string cause(const std::string& index) {
  const auto parsed = parse_bundle_index(index);
  return parsed ? "accepted" : parsed.error().message;
}

TEST(ByteReader, TakesNumbersOnlyInTheirShortestForm) {
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{127}, std::uint64_t{128}, ~std::uint64_t{0}}) {
    const std::string spelled = varint(value);
    EXPECT_EQ(ByteReader(spelled).varint(), value);
  }
  EXPECT_FALSE(ByteReader(std::string_view("\x81\x00", 2)).varint());
  EXPECT_FALSE(ByteReader("\x80").varint());
  EXPECT_FALSE(ByteReader("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02").varint());
  EXPECT_FALSE(ByteReader("abc").fixed32());
}

RC_GTEST_PROP(Table, EveryEntryIsReadBack, (std::map<std::string, std::string> entries, std::uint64_t seed)) {
  Rng rng(seed);
  TableWriter writer;
  writer.entries_per_block = 1 + static_cast<int>(rng.below(5));
  writer.restart_interval = 1 + static_cast<int>(rng.below(5));
  std::map<std::string, std::string> read;
  const std::string table = writer.write(entries);
  const auto status = read_table(table, [&](std::string_view key, std::string_view value) -> Status {
    read.emplace(key, value);
    return {};
  });
  RC_ASSERT(status.has_value());
  RC_ASSERT(read == entries);
}

TEST(Table, SnappyIsNamed) {
  TableWriter writer;
  writer.block_type = 1;
  const auto parsed = parse_bundle_index(write_bundle({}, 1, writer).index);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::refused);
  EXPECT_NE(parsed.error().message.find("snappy"), std::string::npos);
}

TEST(Bundle, EntriesAreOrderedAndShardsMeasured) {
  const Tensor a{.name = "a", .shape = {3}, .bytes = "aaa", .shard = 1};
  const Tensor b{.name = "b", .bytes = "bb"};
  const Tensor parts{.name = "parts", .partitioned = true};
  const auto index = parse_bundle_index(write_bundle({a, b, parts}, 3).index);
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(index->shards, 3u);
  EXPECT_EQ(index->shard_bytes, (std::vector<std::uint64_t>{2, 3, 0}));
  ASSERT_EQ(index->entries.size(), 2u);
  EXPECT_EQ(index->entries[0].name, "b");
  EXPECT_EQ(index->entries[1].elements, 3u);
}

TEST(Bundle, RefusesWhatCannotBe) {
  TableWriter writer;
  const std::string header = proto_number(1, 1);
  EXPECT_EQ(cause(""), "it does not end like a table (cut short?)");
  EXPECT_EQ(cause(writer.write({})), "its header is missing");
  EXPECT_EQ(cause(writer.write({{"a", ""}})), "its header is missing");
  EXPECT_EQ(cause(writer.write({{"", ""}})), "its header is malformed");
  EXPECT_EQ(cause(writer.write({{"", proto_number(1, 1'000'000)}})), "its header is malformed");
  EXPECT_EQ(cause(writer.write({{"", header + proto_bytes(3, proto_number(2, 99))}})), "it needs a reader of bundle version 99");
  EXPECT_NE(cause(write_bundle({}, 1, {}, 1).index).find("big-endian"), std::string::npos);
  const auto with = [&](const std::string& entry) { return cause(writer.write({{"", header}, {"a", entry}})); };
  EXPECT_EQ(with(proto_number(3, 1)), "an entry is malformed");                           // no such shard
  EXPECT_EQ(with(proto_number(4, ~0ull) + proto_number(5, 2)), "an entry is malformed");  // wraps around
  EXPECT_EQ(with("\x0b"), "an entry is malformed");                                       // a group
  EXPECT_EQ(with(proto_bytes(2, proto_bytes(2, proto_number(1, ~0ull)) + proto_bytes(2, proto_number(1, 3)))), "an entry is malformed");
  EXPECT_EQ(cause(writer.write({{"", header}, {"a", proto_number(5, 9)}, {"b", proto_number(4, 3) + proto_number(5, 9)}})),
            "the entries a and b overlap");
}

TEST(Bundle, NamesAndSteps) {
  EXPECT_EQ(bundle_data_name("p", 1, 12), "p.data-00001-of-00012");
  EXPECT_EQ(bundle_prefix_of_index("model-1.index"), "model-1");
  EXPECT_EQ(bundle_prefix_of_index("model-1.meta"), "");
  EXPECT_TRUE(is_bundle_file("p.data-00001-of-00012", "p"));
  EXPECT_TRUE(is_bundle_file("p.meta", "p"));
  EXPECT_FALSE(is_bundle_file("p.data-00001-of-00012", "q"));
  EXPECT_FALSE(is_bundle_file("p.data-0001-of-00012", "p"));
  EXPECT_FALSE(is_bundle_file("p-2.index", "p"));
  EXPECT_EQ(bundle_step("/a-9/model.ckpt-1200"), 1200);
  EXPECT_EQ(bundle_step("cp-0007.ckpt"), 7);
  EXPECT_EQ(bundle_step("model"), 0);
  EXPECT_EQ(bundle_step("model-final"), 0);
  EXPECT_EQ(bundle_step("model-99999999999999999999999"), 0);
}

TEST(Bundle, LengthsOfTextAreBoundToTheirElements) {
  const Tensor text{.name = "t", .dtype = 7, .shape = {2}, .elements = {"hi", "you"}};
  const auto bundle = write_bundle({text}, 1);
  auto entry = parse_bundle_index(bundle.index)->entries.at(0);
  const auto good = [&](const std::string& bytes) {
    BundleEntryCheck check(entry);
    check.feed(bytes);
    return check.finish();
  };
  EXPECT_TRUE(good(bundle.shards[0]));
  EXPECT_FALSE(good(bundle.shards[0] + "x"));
  EXPECT_FALSE(good(bundle.shards[0].substr(1)));
  entry.elements = 3;
  EXPECT_FALSE(good(bundle.shards[0]));
}

}  // namespace
}  // namespace dtrain::test
