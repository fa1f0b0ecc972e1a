#include "agent/dtrainctl/escapes.h"

#include <gtest/gtest.h>

namespace dtrain::ctl {
namespace {

std::string pass(const std::string& bytes, bool colors = true) { return EscapeFilter(colors).pass(bytes); }

TEST(Escapes, ColoursPassAndNothingElse) {
  EXPECT_EQ(pass("a\033[1;31mred\033[0m b\n"), "a\033[1;31mred\033[0m b\n");
  EXPECT_EQ(pass("a\033[38;2;1;2;3mx\033[m"), "a\033[38;2;1;2;3mx\033[m");
  for (const char* sequence : {"\033[2J",
                               "\033[H",
                               "\033[?1049h",
                               "\033[?25l",
                               "\033[>4;1m",
                               "\033[10;20r",
                               "\033]0;title\007",
                               "\033]8;;link\033\\",
                               "\033P1$r\033\\",
                               "\033c",
                               "\0337",
                               "\033(0",
                               "\033#8",
                               "\033=",
                               "\016",
                               "\007",
                               "\b",
                               "\xc2\x9b"
                               "2J",
                               "\xc2\x9d"
                               "0;t\007",
                               "\x9b",
                               "\177",
                               "\u202e",
                               "\u2069"})
    EXPECT_EQ(pass(std::string("a") + sequence + "b"), "ab") << sequence + 1;
  EXPECT_EQ(pass("\033[31mred\033[0m", false), "red") << "--no-color means tasks, too";
}

TEST(Escapes, TextIsLeftAlone) {
  const std::string text =
      "Ep\xc3\xb6"
      "che \xe2\x96\x88\xe2\x96\x88 \xf0\x9f\x9a\x80 \xc2\xb5\t|\r\n";
  EXPECT_EQ(pass(text), text);
}

TEST(Escapes, PiecesAreAsTheWhole) {
  const std::string text =
      "a\033[31mb\033[2Jc\033]0;t\033\\d\xc2\xb5\xc2\x9b"
      "5me\xe2\x96\x88\u202a";
  EscapeFilter filter(true);
  std::string out;
  for (const char c : text) out += filter.pass(std::string(1, c));
  EXPECT_EQ(out, pass(text));
  EXPECT_EQ(out, "a\033[31mbcd\xc2\xb5\033[5me\xe2\x96\x88");
}

TEST(Escapes, WhatIsCutOffSwallowsNoLine) {
  EXPECT_EQ(pass("\033]0;no end\nnext line\n"), "\nnext line\n");
  EXPECT_EQ(pass("\033[12\nnext"), "\nnext");
  EXPECT_EQ(pass("\033\nnext"), "\nnext");
  EXPECT_EQ(pass("\033[" + std::string(kSequenceBytes + 5, '1') + "mx").back(), 'x');
  EXPECT_EQ(pass("\033]" + std::string(kControlStringBytes + 10, 't') + "x").back(), 'x') << "nor the rest of a program's words";
}

TEST(Escapes, AColourThatIsOnIsTold) {
  EscapeFilter filter(true);
  filter.pass("\033[31mred");
  EXPECT_TRUE(filter.take_colored());
  EXPECT_FALSE(filter.take_colored());
  filter.pass("\033[31mred\033[0m");
  EXPECT_FALSE(filter.take_colored());
}

}  // namespace
}  // namespace dtrain::ctl
