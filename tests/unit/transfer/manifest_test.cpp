#include "common/transfer/manifest.h"

#include <gtest/gtest.h>

namespace dtrain::transfer {
namespace {

const std::string kSha(64, 'a');

std::string file(const std::string& name) { return "{\"name\":\"" + name + "\",\"size\":3,\"sha256\":\"" + kSha + "\"}"; }
std::string manifest(const std::string& files) { return "{\"version\":1,\"step\":12,\"files\":[" + files + "]}"; }
std::string cause(const std::string& text) {
  const auto parsed = parse_manifest(text);
  return parsed ? "accepted" : parsed.error().message;
}

TEST(ManifestFile, IsReadInAnyOrderWithForeignKeys) {
  const auto parsed =
      parse_manifest("{\"files\":[{\"sha256\":\"" + std::string(64, 'A') +
                     "\",\"shape\":[1,{\"name\":2}],\"size\":3,\"name\":\"a/b.npy\"}],"
                     "\"loss\":0.5,\"config\":{\"step\":\"x\",\"files\":[null]},\"name\":\"run 7\",\"step\":12,\"version\":1}");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->step, 12);
  ASSERT_EQ(parsed->files.size(), 1u);
  EXPECT_EQ(parsed->files[0].name, "a/b.npy");
  EXPECT_EQ(parsed->files[0].size, 3u);
  EXPECT_EQ(parsed->files[0].sha256, kSha);
  EXPECT_TRUE(parse_manifest(manifest("")));  // a job may keep all of its state in the step
}

TEST(ManifestFile, SaysWhatIsWrong) {
  EXPECT_EQ(cause(""), "it is not JSON (byte 1)");
  EXPECT_EQ(cause("[]"), "it is not an object");
  EXPECT_EQ(cause("7"), "it is not an object");
  EXPECT_EQ(cause("{\"step\":1,\"files\":[]}"), "its version is missing");
  EXPECT_EQ(cause("{\"version\":1,\"files\":[]}"), "its step is missing");
  EXPECT_EQ(cause("{\"version\":1,\"step\":1}"), "its files is missing");
  EXPECT_EQ(cause("{\"version\":2,\"step\":1,\"files\":[]}"), "it has version 2, known is 1");
  EXPECT_EQ(cause("{\"version\":1,\"step\":-1,\"files\":[]}"), "\"step\" is a negative number");
  EXPECT_EQ(cause("{\"version\":1,\"step\":1.5,\"files\":[]}"), "\"step\" is a number with a fraction");
  EXPECT_EQ(cause("{\"version\":1,\"step\":18446744073709551615,\"files\":[]}"), "its step is too large");
  EXPECT_EQ(cause("{\"version\":1,\"step\":\"1\",\"files\":[]}"), "\"step\" is text");
  EXPECT_EQ(cause("{\"version\":1,\"step\":1,\"step\":2,\"files\":[]}"), "the key \"step\" is there twice");
  EXPECT_EQ(cause("{\"version\":1,\"step\":1,\"files\":{}}"), "\"files\" is an object");
  EXPECT_EQ(cause(manifest("1")), "\"files\" holds a number instead of an object");
  EXPECT_EQ(cause(manifest("[]")), "\"files\" holds a list instead of an object");
  EXPECT_EQ(cause(manifest("{}")), "a file has no name");
  EXPECT_EQ(cause(manifest("{\"name\":\"w\",\"size\":1}")), "file w has no sha256");
  EXPECT_EQ(cause(manifest("{\"name\":\"w\",\"sha256\":\"" + kSha + "\"}")), "file w has no size");
  EXPECT_EQ(cause(manifest("{\"name\":\"w\",\"size\":1,\"sha256\":\"abc\"}")), "a file's sha256 is not 64 hexadecimal digits");
  EXPECT_EQ(cause(manifest(file("w") + "," + file("w"))), "it names w twice");
  EXPECT_EQ(cause(manifest(file("MANIFEST.json"))), "it names itself");
  EXPECT_EQ(cause(manifest(file("w")) + "x").substr(0, 14), "it is not JSON");
  EXPECT_EQ(cause("{\"version\":1,\"step\":1,\"files\":[],\"x\":" + std::string(100, '[') + std::string(100, ']') + "}"),
            "it is nested too deep");
}

TEST(ManifestFile, NamesStayInside) {
  for (const char* good : {"w", "a/b/c", "..w", "w..", "a b", "\xc3\xa4"}) EXPECT_TRUE(is_inner_name(good)) << good;
  for (const char* bad : {"", "/", "/etc/passwd", "..", "../w", "a/../b", "a/..", ".", "./w", "a//b", "a/"})
    EXPECT_FALSE(is_inner_name(bad)) << bad;
  EXPECT_FALSE(is_inner_name(std::string_view("a\0b", 3)));
  EXPECT_EQ(cause(manifest(file("../w"))), "it names a file outside the checkpoint");
  EXPECT_EQ(cause(manifest(file("a\\u0000b"))), "it names a file outside the checkpoint");
  EXPECT_EQ(cause(manifest(file(std::string(kManifestNameBytes + 1, 'w')))), "a file's name is too long");
}

TEST(ManifestFile, LimitsHold) {
  EXPECT_NE(cause(std::string(kManifestBytes + 1, ' ')).find("longer than"), std::string::npos);
  std::string files;
  for (std::size_t i = 0; i <= kManifestFiles; ++i) files += (i ? "," : "") + file(std::to_string(i));
  EXPECT_EQ(cause(manifest(files)), "it names more than 100000 files");
}

}  // namespace
}  // namespace dtrain::transfer
