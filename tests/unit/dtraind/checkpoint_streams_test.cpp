#include "agent/dtraind/checkpoint_streams.h"

#include <optional>

#include "tests/unit/store/checkpoint_world.h"

namespace dtrain::test {
namespace {

using wire::MessageType;

constexpr node::ConnectionId kConnection = 4;

class CheckpointStreamsTest : public CheckpointWorld, public proc::Outlet {
 protected:
  std::size_t room(node::ConnectionId) override { return 1 << 20; }
  void send(node::ConnectionId, const wire::Message& message) override { sent_.push_back(message); }

  // Files without bytes, which have names of `name_bytes`.
  const std::vector<wire::Message>& sent_of(std::size_t files, std::size_t name_bytes) {
    Files list;
    for (std::size_t i = 0; i < files; ++i) {
      std::string name = std::to_string(i);
      name.resize(name_bytes, 'x');
      list.emplace_back(name, "");
    }
    write_manifest_checkpoint(dir_ + "/step-1", 1, list);
    sent_.clear();
    streams_.open({kConnection, 1, scan().at(0), {"root", 0}, 0, ""});
    while (!works_.empty()) {
      const auto work = std::move(works_.front());
      works_.erase(works_.begin());
      if (const auto done = work()) done();
    }
    return sent_;
  }

  std::vector<wire::Message> sent_;
  std::vector<store::DiskWorker::Work> works_;
  daemon::CheckpointStreams streams_{
      *this, [this](store::DiskWorker::Work work) { works_.push_back(std::move(work)); }, [](const node::Event&) {}, {}};
};

TEST_F(CheckpointStreamsTest, ListIsOneMessageThatTheOtherEndTakes) {
  const auto& sent = sent_of(1000, 200);
  ASSERT_GE(sent.size(), 2u);
  EXPECT_EQ(sent[0].type, MessageType::checkpoint_files);
  EXPECT_LE(wire::encode(sent[0]).size() + relay::kWindowBytes, daemon::kRelayAnswerBytes);
  EXPECT_EQ(sent.back().type, MessageType::blob_chunk);
  EXPECT_TRUE(sent.back().last);
}

TEST_F(CheckpointStreamsTest, LongerListIsRefusedWithItsReason) {
  const auto& sent = sent_of(1200, 240);
  ASSERT_EQ(sent.size(), 1u);
  const auto reply = wire::decode<wire::ErrorReply>(sent[0].payload);
  ASSERT_TRUE(reply && reply->errors.size() == 1);
  EXPECT_EQ(reply->errors[0].code, ErrorCode::limit);
  EXPECT_NE(reply->errors[0].message.find("it has 1201 files, whose names take"), std::string::npos) << reply->errors[0].message;
}

}  // namespace
}  // namespace dtrain::test
