// Hostile and unusual YAML: refused quickly with a reason, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/limits.h"
#include "common/base/rng.h"
#include "common/job/yaml_tree.h"
#include "tests/unit/job/support.h"

namespace dtrain::job {
namespace {

using ::testing::ElementsAre;
using testing::error_lines;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string refusal(const std::string& text) {
  const auto tree = parse_yaml(text);
  return tree ? "accepted" : tree.error().code + ": " + tree.error().message;
}

std::string repeat(const std::string& text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

TEST(Yaml, ScalarsAreLiteralText) {
  const auto tree = parse_yaml("[true, 3, on, 0x10, 1e3, \"null\", 'a\nb', 2026-11-20]");
  ASSERT_TRUE(tree);
  std::vector<std::string> texts;
  for (const auto& item : tree->items) texts.push_back(item.text);
  EXPECT_THAT(texts, ElementsAre("true", "3", "on", "0x10", "1e3", "null", "a b", "2026-11-20"));
}

TEST(Yaml, NullIsNotText) {
  const auto tree = parse_yaml("[~, null, '', \"~\"]");
  ASSERT_TRUE(tree);
  EXPECT_EQ(tree->items[0].kind, YamlNode::Kind::null);
  EXPECT_EQ(tree->items[1].kind, YamlNode::Kind::null);
  EXPECT_EQ(tree->items[2].kind, YamlNode::Kind::scalar);
  EXPECT_EQ(tree->items[3].text, "~");
}

TEST(Yaml, LinesAreThoseOfTheKeys) {
  const auto tree = parse_yaml("# comment\na: 1\nb:\n  c:\n    - x\n    - y\n");
  ASSERT_TRUE(tree);
  EXPECT_EQ(tree->entries[0].line, 2u);
  EXPECT_EQ(tree->entries[1].line, 3u);
  EXPECT_EQ(tree->entries[1].value.entries[0].line, 4u);
  EXPECT_EQ(tree->entries[1].value.entries[0].value.items[1].line, 6u);
}

TEST(Yaml, AliasesRepeatWhatTheyName) {
  const auto tree = parse_yaml("a: &x {k: [1, 2]}\nb: *x\nc: [*x, *x]\n");
  ASSERT_TRUE(tree);
  EXPECT_EQ(tree->find("b")->find("k")->items[1].text, "2");
  EXPECT_EQ(tree->find("c")->items[1].find("k")->items[0].text, "1");
}

TEST(Yaml, TagsOfPlainKindsAreAllowed) {
  EXPECT_EQ(refusal("a: !!str 3\nb: !!seq [1]\nc: !!map {d: e}\nd: ! x"), "accepted");
  EXPECT_THAT(refusal("a: !!int 3"), HasSubstr("tag"));
}

TEST(Yaml, EmptyFiles) {
  for (const char* text : {"", "\n\n", "# only a comment\n"}) EXPECT_THAT(refusal(text), HasSubstr("empty")) << text;
  EXPECT_THAT(error_lines(""), ElementsAre("f.yaml: the file is empty: it holds no job"));
}

TEST(Yaml, BytesThatAreNoText) {
  EXPECT_THAT(refusal(std::string("a: \xff\xfe")), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal(std::string("a: \xed\xa0\x80")), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal(std::string("\xff\xfe"
                                  "a\0:\0",
                                  6)),
              HasSubstr("not text"));
  EXPECT_THAT(refusal("a: \x1b[2J"), HasSubstr("control character `\\x1b`"));
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    std::string junk;
    for (int i = 0; i < 4096; ++i) junk += static_cast<char>(rng.below(256));
    EXPECT_NE(refusal(junk), "accepted");
  }
}

TEST(Yaml, SizeIsCheckedFirst) {
  EXPECT_THAT(refusal("a: " + std::string(20'000'000, 'x')), HasSubstr("at most 1048576 are read"));
  EXPECT_EQ(refusal("a: " + std::string(limits::kJobFileBytes - 3, 'x')), "accepted");
}

TEST(Yaml, AliasBombs) {
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    const std::string before(1, static_cast<char>(c - 1));
    bomb += std::string(1, c) + ": &" + c + " [" + repeat("*" + before + ",", 7) + "*" + before + "]\n";
  }
  EXPECT_THAT(refusal(bomb), HasSubstr("limit: more than 100000 values"));
  EXPECT_THAT(refusal("a: &a " + std::string(500'000, 'x') + "\nb: [" + repeat("*a,", 1000) + "]"), HasSubstr("bytes of text"));
  std::string anchors;  // each anchored value inside the other: copies must count
  for (int i = 0; i < 30; ++i) anchors += "&a" + std::to_string(i) + " [";
  EXPECT_THAT(refusal(anchors + repeat("x,", 20'000) + std::string(30, ']')), HasSubstr("limit: "));
}

TEST(Yaml, Depth) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(refusal(nested(limits::kYamlDepth)), "accepted");
  EXPECT_THAT(refusal(nested(limits::kYamlDepth + 1)), HasSubstr("deeper than 32"));
  for (const char* unit : {"[", "{", "[ ", "{a: ", "- ", "? ", "- - ", "[a, ", "a: {", "&a [", "!a [", "\"a\": [", "[[a, b], ", "- ? "}) {
    const std::string text = repeat(unit, 500'000 / std::string(unit).size());
    EXPECT_NE(refusal(text), "accepted") << unit;
    EXPECT_NE(refusal(text.substr(0, 2'000)), "accepted") << unit;
  }
  std::string lines;
  for (std::size_t i = 0; i < 1000; ++i) lines += std::string(i, ' ') + "a:\n";
  EXPECT_THAT(refusal(lines), HasSubstr("deeper than 32"));
}

TEST(Yaml, DepthThroughAliases) {
  std::string text = "a0: &a0 [x]\n";
  for (int i = 1; i < 40; ++i) text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  EXPECT_THAT(refusal(text), HasSubstr("deeper than 32"));
}

// As json.dumps() and JSON.stringify() write what is beyond 0xFFFF.
TEST(Yaml, AJsonFileIsReadAsJson) {
  const auto tree =
      parse_yaml("{\n\t\"a\": \"x\\ud83d\\ude00\\u00e9\",\n\t\"b\":[\"\\\\ud83d\\\\ude00\",\"\\/\\n\"],\"\\uD83C\\uDF89\":\"\"}\n");
  ASSERT_TRUE(tree) << tree.error().message;
  EXPECT_EQ(tree->find("a")->text, "x\U0001F600\u00e9");
  EXPECT_EQ(tree->find("b")->items[0].text, "\\ud83d\\ude00") << "an escaped backslash begins no escape";
  EXPECT_EQ(tree->find("b")->items[1].text, "/\n");
  EXPECT_NE(tree->find("\U0001F389"), nullptr);
  EXPECT_EQ(tree->find("b")->line, 3u);
  for (const char* half : {"{\"a\": \"\\ud83d\"}", "{\"a\": \"\\ude00\\ud83d\"}", "{\"a\": \"\\ud83d\\u0041\"}"})
    EXPECT_THAT(refusal(half), HasSubstr("syntax")) << half;
  // What is no JSON means what YAML says.
  EXPECT_EQ(parse_yaml("a: '\\ud83d\\ude00'")->find("a")->text, "\\ud83d\\ude00");
}

TEST(Yaml, TabsGetASentence) {
  const std::string sentence = "syntax: this line is indented with a tab, which YAML does not allow";
  for (const char* text : {"a:\n\tb: 1\n", "a:\n  b: 1\n\tc: 2\n", "a:\n  - x\n\t- y\n", "a:\n  b:\n  \tc: 1\n  \td: 2\n"})
    EXPECT_EQ(refusal(text), sentence) << text;
  const auto tree = parse_yaml("a:\n  b: 1\n\tc: 2\n");
  ASSERT_FALSE(tree);
  EXPECT_EQ(tree.error().line, 3u);
  // Where they are text, or stand where they may, they are not at fault.
  EXPECT_EQ(refusal("a: |\n  all:\n  \tmake\nb:\t1\n"), "accepted");
  EXPECT_NE(refusal("a: |\n  all:\n  \tmake\nb: [1\n"), sentence);
}

TEST(Yaml, BracketsInTextAreNotNesting) {
  EXPECT_EQ(refusal("a: \"" + std::string(30, '[') + "\"\nb: |\n  if [[ -f x ]]; then {{x}}; fi\n"), "accepted");
}

}  // namespace
}  // namespace dtrain::job
