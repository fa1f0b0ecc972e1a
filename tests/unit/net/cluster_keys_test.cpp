#include "agent/net/cluster_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/net/key_ring.h"
#include "common/wire/key_file.h"
#include "tests/unit/net/links_world.h"

namespace dtrain::net {
namespace {

using ::testing::HasSubstr;

struct KeyFile : ::testing::Test {
  std::string directory = ::testing::TempDir() + "keys-XXXXXX", path;
  void SetUp() override {
    ASSERT_NE(::mkdtemp(directory.data()), nullptr);
    path = directory + "/cluster.key";
  }
  void TearDown() override { std::filesystem::remove_all(directory); }
  void write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path) << text;
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }
  std::string refusal() {
    const auto keys = read_key_file(path);
    return keys ? "it was read" : keys.error().text();
  }
};

std::string rendered(const std::vector<KeyPair>& pairs) {
  std::vector<wire::KeyText> texts;
  for (const KeyPair& pair : pairs) texts.push_back({pair.public_key, pair.secret_key});
  return wire::render_key_file(texts);
}

TEST_F(KeyFile, IsReadInItsOrder) {
  const KeyPair a = testing::make_pair(), b = testing::make_pair();
  write(rendered({a, b}));
  const auto keys = read_key_file(path);
  ASSERT_TRUE(keys) << keys.error().text();
  ASSERT_EQ(keys->pairs.size(), 2u);
  EXPECT_EQ(keys->pairs[0].public_key, a.public_key);
  EXPECT_EQ(keys->pairs[1].secret_key, b.secret_key);
}

TEST_F(KeyFile, ThatIsMissingSaysHowToMakeOne) {
  EXPECT_THAT(refusal(), HasSubstr("could not read cluster key " + path));
  EXPECT_THAT(refusal(), HasSubstr("dtrainctl keygen"));
}

TEST_F(KeyFile, OfAnotherUserIsRefused) {
  if (::geteuid() != 0) return;  // nobody else's could be made
  write(new_key_file());
  ASSERT_TRUE(read_key_file(path));
  ASSERT_EQ(::chown(path.c_str(), 65534, 0), 0);
  EXPECT_THAT(refusal(), HasSubstr("could not read cluster key " + path + ": it is user id 65534's, who knows what is in it"));
}

TEST_F(KeyFile, AreEachAnotherOne) { EXPECT_NE(new_key_file(), new_key_file()); }

TEST_F(KeyFile, ThatOthersMayReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0660, 0610}) {
    write(rendered({testing::make_pair()}), mode);
    EXPECT_THAT(refusal(), HasSubstr("chmod 0600 " + path)) << std::oct << mode;
  }
}

TEST_F(KeyFile, WithAPublicKeyOfAnotherSecretIsRefused) {
  KeyPair mixed = testing::make_pair();
  mixed.public_key = testing::make_pair().public_key;
  write(rendered({testing::make_pair(), mixed}));
  EXPECT_THAT(refusal(), HasSubstr("the public key of pair 2 does not belong to its secret"));
}

TEST_F(KeyFile, EmptyDamagedOrNoFileAtAllIsRefused) {
  for (const std::string& text : {std::string(), std::string("# nothing but words\n"), std::string("dtrain-key-v1 abc\n"),
                                  std::string(100'000, 'x'), std::string(64, '\0')}) {
    write(text);
    EXPECT_THAT(refusal(), HasSubstr("could not read cluster key " + path));
  }
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_THAT(refusal(), HasSubstr("could not read cluster key " + path));
}

TEST_F(KeyFile, SecretsNeverAppearInRefusals) {
  const KeyPair pair = testing::make_pair();
  std::string text = rendered({pair});
  const std::string secret = text.substr(text.size() - 65, 64);
  text.insert(text.size() - 1, "zz");
  write(text);
  EXPECT_THAT(refusal(), ::testing::Not(HasSubstr(secret.substr(0, 16))));
  EXPECT_THAT(refusal(), HasSubstr("could not read cluster key"));
}

TEST(NodeKey, FollowsFromSecretAndNodeAlone) {
  KeyPair cluster;
  cluster.secret_key.fill(7);
  ASSERT_EQ(::crypto_scalarmult_base(cluster.public_key.data(), cluster.secret_key.data()), 0);
  const KeyPair key = node_key(cluster, {1, 2});
  EXPECT_EQ(key.secret_key, node_key(cluster, {1, 2}).secret_key);
  EXPECT_NE(key.secret_key, node_key(cluster, {2, 1}).secret_key);
  EXPECT_NE(key.secret_key, node_key(testing::make_pair(), {1, 2}).secret_key);
  CurveKey expected{};
  ASSERT_EQ(::crypto_scalarmult_base(expected.data(), key.secret_key.data()), 0);
  EXPECT_EQ(key.public_key, expected);
  // Another version of dtrain must derive the same, or nodes refuse each other during an upgrade.
  EXPECT_EQ(key_print(key.public_key), "3563b66204dfd120");
  EXPECT_EQ(key_print(cluster.public_key), "c8a7416aa0079da4");
}

TEST(DoorKey, FollowsFromTheSecretAndIsNoneOfTheOthers) {
  KeyPair cluster;
  cluster.secret_key.fill(7);
  ASSERT_EQ(::crypto_scalarmult_base(cluster.public_key.data(), cluster.secret_key.data()), 0);
  const KeyPair key = door_key(cluster);
  CurveKey expected{};
  ASSERT_EQ(::crypto_scalarmult_base(expected.data(), key.secret_key.data()), 0);
  EXPECT_EQ(key.public_key, expected);
  EXPECT_NE(key.secret_key, cluster.secret_key);
  EXPECT_NE(key.secret_key, node_key(cluster, {}).secret_key);
  // Another version of dtrain must derive the same, or clients' key files are worth nothing after an upgrade.
  EXPECT_EQ(key_print(key.public_key), "439f7baad083464d");
}

TEST(KeyRing, RecognisesEachMemberUnderEachPair) {
  const KeyPair first = testing::make_pair(), second = testing::make_pair();
  KeyRing ring(ClusterKeys{{first, second}}, {0, 1});
  bool more = false;
  constexpr std::uint64_t kMembers = 40;
  for (std::uint64_t i = 2; i < kMembers; ++i) {
    wire::Identity member;
    member.id = {0, i};
    member.address = {i % 2 ? "10.0.0.1" : "10.0.0.2", 7400};
    member.key_print = key_print(second.public_key);
    EXPECT_TRUE(ring.know(member));
    EXPECT_FALSE(ring.know(member));
    EXPECT_EQ(ring.pair_of(member.id), 1u);
  }
  for (const KeyPair& pair : {first, second}) {
    for (std::uint64_t i = 2; i < kMembers; ++i) {
      const auto holder = ring.holder_of(node_key(pair, {0, i}).public_key, "10.0.0.1", more);
      ASSERT_TRUE(holder) << i;
      EXPECT_FALSE(holder->cluster);
      EXPECT_EQ(holder->node, (MemberId{0, i}));
    }
    const auto holder = ring.holder_of(pair.public_key, "", more);
    ASSERT_TRUE(holder);
    EXPECT_TRUE(holder->cluster);
  }
  EXPECT_FALSE(ring.holder_of(node_key(first, {0, 99}).public_key, "10.0.0.1", more));
  EXPECT_FALSE(ring.holder_of(testing::make_pair().public_key, "10.0.0.1", more));
  EXPECT_FALSE(more);
  // A pair that is taken out takes its node keys along.
  ring.replace(ClusterKeys{{second}});
  EXPECT_FALSE(ring.holder_of(node_key(first, {0, 5}).public_key, "10.0.0.1", more));
  EXPECT_FALSE(ring.holder_of(first.public_key, "10.0.0.1", more));
  EXPECT_TRUE(ring.holder_of(node_key(second, {0, 5}).public_key, "10.0.0.1", more));
}

wire::Identity member_of(std::uint64_t number) {
  wire::Identity member;
  member.id = {0, number};
  member.address = {"10.0." + std::to_string(number / 256) + "." + std::to_string(number % 256), 7400};
  return member;
}

TEST(KeyRing, UnknownKeysShareABoundedNumberOfMultiplicationsPerTurn) {
  const KeyPair first = testing::make_pair(), second = testing::make_pair();
  KeyRing ring(ClusterKeys{{first, second}}, {0, 1});
  constexpr std::uint64_t kMembers = 2 * kDerivedPerTurn;  // of two keys each: four turns' worth
  for (std::uint64_t i = 2; i < 2 + kMembers; ++i) ring.know(member_of(i));
  bool more = true;
  for (int turn = 0; turn < 4; ++turn) {
    EXPECT_TRUE(more) << turn;
    ring.begin_turn();
    // However many ask: the second finds nothing left, wherever its holder stands in the order.
    EXPECT_FALSE(ring.holder_of(testing::make_pair().public_key, "", more));
    if (turn == 0) {
      const std::string ip = member_of(1 + kMembers).address.ip;
      EXPECT_FALSE(ring.holder_of(node_key(first, {0, 1 + kMembers}).public_key, ip, more));
      EXPECT_TRUE(more);
    }
  }
  EXPECT_FALSE(more);
  for (std::uint64_t i = 2; i < 2 + kMembers; ++i) EXPECT_TRUE(ring.holder_of(node_key(second, {0, i}).public_key, "", more)) << i;
}

}  // namespace
}  // namespace dtrain::net
