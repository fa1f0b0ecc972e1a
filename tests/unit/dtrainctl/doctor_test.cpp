// doctor: what an agent answers, as people and scripts see it; and this host alone, where none answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "agent/dtrainctl/tables.h"
#include "common/json/answers.h"
#include "common/wire/doctor.h"
#include "tests/unit/dtrainctl/fake_agent.h"

namespace dtrain::ctl {
namespace {

using ::testing::HasSubstr;
using wire::MessageType;
using Unordered = nlohmann::json;

class Doctor : public testing::Test {
 protected:
  Ran ctl(std::vector<std::string> args) {
    args.insert(args.begin(), {"--agent", dir_.path() + "/s"});
    return run_ctl(args);
  }
  void finds(std::vector<wire::Finding> findings) {
    wire::DoctorReply reply;
    reply.findings = std::move(findings);
    agent_.reset();  // it takes its socket along
    agent_ = std::make_unique<FakeAgent>(dir_.path() + "/s", [reply](const wire::Message& m) {
      return FakeAgent::Answer{{reply_to(m, MessageType::doctor, reply)}, false};
    });
  }
  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(dir_.path() + "/" + name) << text;
    return dir_.path() + "/" + name;
  }
  TempDir dir_;
  std::unique_ptr<FakeAgent> agent_;
};

const wire::Finding kWell{"disk", "gpu01", "ok", "paths.data 60.0 GiB free", ""};
const wire::Finding kOdd{"clock", "gpu02", "warn", "it is 3.0 s behind", "set it"};
const wire::Finding kIll{"reach", "n3", "bad", "its agent is down", "start it"};

TEST_F(Doctor, TheWorstComesFirstWithItsCure) {
  finds({kWell, kOdd, kIll});
  const Ran ran = ctl({"doctor"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.out,
            "bad   reach  n3     its agent is down\n      cure: start it\nwarn  clock  gpu02  it is 3.0 s behind\n      cure: set it\n"
            "ok    disk   gpu01  paths.data 60.0 GiB free\n1 bad, 1 warn, 1 ok\n");
  EXPECT_EQ(agent_->requests().at(0).type, MessageType::query_doctor);
}

TEST_F(Doctor, OnlyWhatIsBadIsAFailure) {
  finds({kWell, kOdd});
  EXPECT_EQ(ctl({"doctor"}).code, 0);
  finds({});
  const Ran none = ctl({"doctor"});
  EXPECT_EQ(none.code, 0);
  EXPECT_EQ(none.out, "0 bad, 0 warn, 0 ok\n");
}

TEST_F(Doctor, Json) {
  finds({kIll, kWell});
  const Ran ran = ctl({"-o", "json", "doctor"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(Unordered::parse(ran.out), Unordered::parse(R"([
    {"check": "reach", "node": "n3", "level": "bad", "finding": "its agent is down", "cure": "start it"},
    {"check": "disk", "node": "gpu01", "level": "ok", "finding": "paths.data 60.0 GiB free", "cure": ""}])"));
}

TEST_F(Doctor, AnAgentThatRefusesIsNotTakenForNone) {
  agent_ = std::make_unique<FakeAgent>(dir_.path() + "/s", [](const wire::Message& m) {
    const auto no = wire::error_reply({ErrorCode::limit, "could not examine: so", "wait"});
    return FakeAgent::Answer{{reply_to(m, MessageType::error, no)}, false};
  });
  const Ran ran = ctl({"doctor"});
  EXPECT_EQ(ran.code, 5);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "dtrainctl: could not examine: so; wait\n");
}

TEST_F(Doctor, WithoutAnAgentThisHostIsLookedAt) {
  const std::string config =
      file("dtraind.yaml", "node: {name: n9}\nnetwork: {listen: '127.91.0.1:7400'}\npaths: {data: " + dir_.path() + "/data}\n");
  const Ran ran = ctl({"-o", "json", "doctor", "--config", config});
  EXPECT_EQ(ran.code, 4);
  EXPECT_THAT(ran.err, HasSubstr("no agent answers"));
  const Unordered findings = Unordered::parse(ran.out);
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0]["check"], "agent");
  EXPECT_EQ(findings[0]["level"], "bad");
  EXPECT_EQ(findings[0]["node"], "n9");
  EXPECT_THAT(findings[0]["finding"].get<std::string>(), HasSubstr(dir_.path() + "/s"));
  EXPECT_EQ(findings[1], Unordered::parse(R"({"check": "config", "node": "n9", "level": "ok", "finding": "can be read", "cure": ""})"));
  EXPECT_THAT(ran.out, HasSubstr(dir_.path() + "/data"));
}

TEST_F(Doctor, AConfigurationThatIsWrongIsAFinding) {
  const auto config_of = [](const Ran& ran) {
    std::string text;
    for (const Unordered& f : Unordered::parse(ran.out))
      if (f["check"] == "config") text += f["level"].get<std::string>() + ": " + f["finding"].get<std::string>();
    return text;
  };
  const Ran wrong = ctl({"-o", "json", "doctor", "--config", file("wrong.yaml", "netwrok: {}\n")});
  EXPECT_EQ(wrong.code, 4);
  EXPECT_THAT(config_of(wrong), ::testing::AllOf(HasSubstr("bad: "), HasSubstr("netwrok")));
  const Ran missing = ctl({"-o", "json", "doctor", "--config", dir_.path() + "/none.yaml"});
  EXPECT_EQ(missing.code, 4);
  EXPECT_THAT(config_of(missing), ::testing::AllOf(HasSubstr("bad: "), HasSubstr("none.yaml")));
}

}  // namespace
}  // namespace dtrain::ctl
