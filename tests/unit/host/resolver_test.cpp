#include "agent/host/resolver.h"

#include <gtest/gtest.h>
#include <poll.h>

#ifdef DTRAIN_SANITIZED
// A test ends while glibc's resolver still asks, in a thread that nobody can stop: what that holds is no leak
// of ours.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:__res_context_send"; }
#endif

namespace dtrain::host {
namespace {

TEST(Seed, WithAndWithoutPort) {
  const auto is = [](std::string_view text, const std::string& host, std::uint16_t port) {
    const auto seed = parse_seed(text);
    return seed && seed->host == host && seed->port == port;
  };
  EXPECT_TRUE(is("gpu01", "gpu01", 7400));
  EXPECT_TRUE(is("gpu01:7500", "gpu01", 7500));
  EXPECT_TRUE(is("10.0.0.1:1", "10.0.0.1", 1));
  EXPECT_TRUE(is("[fd00::1]:7500", "fd00::1", 7500));
  EXPECT_TRUE(is("[fd00::1]", "fd00::1", 7400));
  EXPECT_TRUE(is("fd00::1", "fd00::1", 7400));
  for (const char* wrong : {"", ":7400", "gpu01:", "gpu01:0", "gpu01:70000", "gpu01:x", "[fd00::1", "[fd00::1]7400"})
    EXPECT_FALSE(parse_seed(wrong)) << wrong;
}

TEST(Resolver, AddressesAreAnsweredAtOnce) {
  auto resolver = Resolver::open();
  ASSERT_TRUE(resolver);
  std::vector<Endpoint> found;
  (*resolver)->resolve({{"10.0.0.1", 7400}, {"::1", 7500}}, [&](auto all) { found = std::move(all); });
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].text(), "[::1]:7500");
}

TEST(Resolver, NamesFollowLater) {
  auto resolver = Resolver::open();
  ASSERT_TRUE(resolver);
  std::vector<std::vector<Endpoint>> answers;
  const auto sink = [&](auto all) { answers.push_back(std::move(all)); };
  // Looked up like a name, and found on hosts without /etc/hosts too.
  (*resolver)->resolve({{"127.1", 7500}, {"10.0.0.1", 7400}}, sink);
  ASSERT_EQ(answers.size(), 1u);  // what needs no look-up does not wait
  EXPECT_EQ(answers[0].size(), 1u);
  pollfd waiting{(*resolver)->fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&waiting, 1, 30'000), 1);
  (*resolver)->dispatch(sink);
  ASSERT_EQ(answers.size(), 2u);
  ASSERT_GE(answers[1].size(), 2u);
  EXPECT_TRUE(is_loopback(answers[1].back().ip));
  EXPECT_EQ(answers[1].back().port, 7500);
}

TEST(Resolver, ANameOfNobodyIsAnAnswerToo) {
  auto resolver = Resolver::open();
  ASSERT_TRUE(resolver);
  bool answered = false;
  const auto sink = [&](const auto& all) { answered = all.empty(); };
  (*resolver)->resolve({{"no.such.host.invalid", 7400}}, sink);
  EXPECT_FALSE(answered);
  pollfd waiting{(*resolver)->fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&waiting, 1, 60'000), 1);
  (*resolver)->dispatch(sink);
  EXPECT_TRUE(answered);
}

TEST(Resolver, MayEndBeforeTheNameServerAnswers) {
  for (int i = 0; i < 8; ++i) {
    auto resolver = Resolver::open();
    ASSERT_TRUE(resolver);
    (*resolver)->resolve({{"no.such.host.invalid", 7400}}, [](const auto&) {});
  }
}

}  // namespace
}  // namespace dtrain::host
