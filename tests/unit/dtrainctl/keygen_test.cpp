// The cluster's key file: made once, never over another, readable for its owner only.
#include <gtest/gtest.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "agent/net/client_keys.h"
#include "common/wire/client_key_file.h"
#include "common/wire/key_file.h"
#include "tests/unit/dtrainctl/fake_agent.h"

namespace dtrain::ctl {
namespace {

namespace fs = std::filesystem;

class Keygen : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }
  static std::string content(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static std::vector<wire::KeyText> keys(const std::string& file) {
    const auto read = wire::parse_key_file(content(file));
    EXPECT_TRUE(read) << read.error().text();
    return read ? *read : std::vector<wire::KeyText>{};
  }
  static unsigned mode(const std::string& file) {
    struct stat info {};
    EXPECT_EQ(::stat(file.c_str(), &info), 0);
    return info.st_mode & 07777;
  }
  std::size_t files() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(dir_.path()), {})); }

  TempDir dir_;
};

}  // namespace

TEST_F(Keygen, MakesAPairThatBelongsTogether) {
  const mode_t before = ::umask(0);
  const Ran ran = run_ctl({"keygen", path("k")});
  ::umask(before);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_NE(ran.err.find("copy it to all hosts, mode 0600"), std::string::npos);
  EXPECT_EQ(mode(path("k")), 0600u);
  const auto made = keys(path("k"));
  ASSERT_EQ(made.size(), 1u);
  std::array<std::uint8_t, 32> expected{};
  ASSERT_EQ(crypto_scalarmult_base(expected.data(), made[0].secret_key.data()), 0);
  EXPECT_EQ(made[0].public_key, expected);
  EXPECT_EQ(files(), 1u);
  ASSERT_EQ(run_ctl({"keygen", path("other")}).code, 0);
  EXPECT_NE(keys(path("other"))[0].secret_key, made[0].secret_key);
}

TEST_F(Keygen, RefusesAnExistingFileAndLeavesItAlone) {
  std::ofstream(path("k")) << "mine";
  const Ran ran = run_ctl({"keygen", path("k")});
  EXPECT_EQ(ran.code, 5);
  EXPECT_NE(ran.err.find("it exists; name another file"), std::string::npos) << ran.err;
  EXPECT_EQ(content(path("k")), "mine");
  fs::create_symlink(path("nowhere"), path("link"));
  EXPECT_EQ(run_ctl({"keygen", path("link")}).code, 5);
  EXPECT_FALSE(fs::exists(path("nowhere")));
  EXPECT_EQ(run_ctl({"keygen", dir_.path()}).code, 5);
}

TEST_F(Keygen, MakesNoDirectories) {
  const Ran ran = run_ctl({"keygen", path("d/k")});
  EXPECT_EQ(ran.code, 3);
  EXPECT_NE(ran.err.find("make its directory first"), std::string::npos) << ran.err;
  EXPECT_FALSE(fs::exists(path("d")));
}

TEST_F(Keygen, NeedsAFile) { EXPECT_EQ(run_ctl({"keygen"}).code, 2); }

TEST_F(Keygen, AddAppendsAndKeepsWhatIsThere) {
  ASSERT_EQ(run_ctl({"keygen", path("k")}).code, 0);
  std::string before = content(path("k")) + "# ours since May";  // without a line end
  std::ofstream(path("k"), std::ios::trunc) << before;
  const Ran ran = run_ctl({"keygen", "--add", path("k"), "-o", "json"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("\"keys\": 2"), std::string::npos) << ran.out;
  EXPECT_NE(ran.err.find("2. move the last line to the top"), std::string::npos) << ran.err;
  EXPECT_TRUE(content(path("k")).starts_with(before + "\n"));
  EXPECT_EQ(mode(path("k")), 0600u);
  EXPECT_EQ(keys(path("k")).size(), 2u);
  EXPECT_EQ(files(), 1u);
  for (std::size_t pairs = 3; pairs <= wire::kKeyPairs; ++pairs) ASSERT_EQ(run_ctl({"keygen", path("k"), "--add"}).code, 0);
  before = content(path("k"));
  const Ran full = run_ctl({"keygen", path("k"), "--add"});
  EXPECT_EQ(full.code, 5);
  EXPECT_NE(full.err.find("it holds 8 keys"), std::string::npos) << full.err;
  EXPECT_EQ(content(path("k")), before);
}

TEST_F(Keygen, AddRefusesWhatIsNoSafeKeyFile) {
  EXPECT_EQ(run_ctl({"keygen", "--add", path("k")}).code, 3);
  EXPECT_EQ(files(), 0u);
  ASSERT_EQ(run_ctl({"keygen", path("k")}).code, 0);
  fs::create_symlink(path("k"), path("link"));
  const Ran link = run_ctl({"keygen", "--add", path("link")});
  EXPECT_EQ(link.code, 5);
  EXPECT_NE(link.err.find("it is a link"), std::string::npos) << link.err;
  ASSERT_EQ(::chmod(path("k").c_str(), 0640), 0);
  EXPECT_NE(run_ctl({"keygen", "--add", path("k")}).err.find("others may read it"), std::string::npos);
  ASSERT_EQ(::chmod(path("k").c_str(), 0600), 0);
  std::ofstream(path("k.new")) << "of one that was killed";
  const Ran busy = run_ctl({"keygen", "--add", path("k")});
  EXPECT_EQ(busy.code, 5);
  EXPECT_NE(busy.err.find("remove that file"), std::string::npos) << busy.err;
  fs::remove(path("k.new"));
  std::ofstream(path("k"), std::ios::trunc) << "no key";
  const Ran damaged = run_ctl({"keygen", "--add", path("k")});
  EXPECT_EQ(damaged.code, 1);
  EXPECT_NE(damaged.err.find("line 1: does not begin with dtrain-key-v1"), std::string::npos) << damaged.err;
  EXPECT_EQ(content(path("k")), "no key");
  EXPECT_EQ(run_ctl({"keygen", "--add", dir_.path()}).code, 5);
}

TEST_F(Keygen, ClientKeyHoldsNoSecretOfTheCluster) {
  ASSERT_EQ(run_ctl({"keygen", path("cluster")}).code, 0);
  ASSERT_EQ(run_ctl({"keygen", "--add", path("cluster")}).code, 0);
  const Ran ran = run_ctl({"keygen", "--client", path("anne"), "--cluster-key", path("cluster")});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(mode(path("anne")), 0600u);
  const auto made = net::read_client_key_file(path("anne"));
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_EQ(ran.out, wire::key_text(made->own.public_key) + ": USER\n");
  EXPECT_NE(ran.err.find("under access.keys in dtraind.yaml of the agents"), std::string::npos) << ran.err;
  const auto cluster = net::read_key_file(path("cluster"));
  ASSERT_TRUE(cluster);
  ASSERT_EQ(made->agents.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const net::KeyPair& pair = cluster->pairs[i];
    EXPECT_EQ(made->agents[i], net::door_key(pair).public_key);
    EXPECT_NE(made->agents[i], pair.public_key);
    for (const net::CurveKey& key : {pair.secret_key, pair.public_key, net::door_key(pair).secret_key})
      EXPECT_EQ(content(path("anne")).find(wire::key_text(key)), std::string::npos);
  }
  EXPECT_EQ(ran.out.find(wire::key_text(made->own.secret_key)), std::string::npos);
  EXPECT_EQ(ran.err.find(wire::key_text(made->own.secret_key)), std::string::npos);
  const Ran json = run_ctl({"-o", "json", "keygen", "--client", path("bob"), "--cluster-key", path("cluster")});
  EXPECT_NE(json.out.find("\"public_key\""), std::string::npos) << json.out;
}

TEST_F(Keygen, ClientKeyIsRefusedWhereOneIsOrNoClusterKeyIs) {
  EXPECT_EQ(run_ctl({"keygen", "--client", path("anne"), "--cluster-key", path("cluster")}).code, 3);
  EXPECT_EQ(files(), 0u);
  ASSERT_EQ(run_ctl({"keygen", path("cluster")}).code, 0);
  std::ofstream(path("anne")) << "mine";
  const Ran ran = run_ctl({"keygen", "--client", path("anne"), "--cluster-key", path("cluster")});
  EXPECT_EQ(ran.code, 5);
  EXPECT_NE(ran.err.find("could not make client key " + path("anne") + ": it exists; name another file; or give --add"), std::string::npos)
      << ran.err;
  EXPECT_EQ(content(path("anne")), "mine");
  EXPECT_EQ(run_ctl({"keygen", path("x"), "--cluster-key", path("cluster")}).code, 2) << "without --client it means nothing";
}

TEST_F(Keygen, ClientKeyIsBroughtUpToDate) {
  ASSERT_EQ(run_ctl({"keygen", path("cluster")}).code, 0);
  ASSERT_EQ(run_ctl({"keygen", "--client", path("anne"), "--cluster-key", path("cluster")}).code, 0);
  const auto before = net::read_client_key_file(path("anne"));
  ASSERT_EQ(run_ctl({"keygen", path("next")}).code, 0);
  const Ran ran = run_ctl({"keygen", "--client", "--add", path("anne"), "--cluster-key", path("next")});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const auto after = net::read_client_key_file(path("anne"));
  ASSERT_TRUE(before && after);
  EXPECT_EQ(after->own.secret_key, before->own.secret_key);
  EXPECT_EQ(ran.out, wire::key_text(before->own.public_key) + ": USER\n");
  ASSERT_EQ(after->agents.size(), 1u);
  EXPECT_EQ(after->agents[0], net::door_key(net::read_key_file(path("next"))->pairs[0]).public_key);
  EXPECT_EQ(mode(path("anne")), 0600u);
  EXPECT_EQ(files(), 3u);
  EXPECT_EQ(run_ctl({"keygen", "--client", "--add", path("cluster"), "--cluster-key", path("next")}).code, 1) << "it is no client's";
}

}  // namespace dtrain::ctl
