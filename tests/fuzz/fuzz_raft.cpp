// Hostile bytes from other members, and what the disk holds of a log. The first byte chooses: 64 to 73 and
// 112 to 114 a message of that type; 0 to 2 a conversation: a member of so many voters (0: one that waits to be added) is
// told one message after the other, each [type, sender, length in two bytes, bytes]; 250 a configuration, 251
// a request window, 252 to 254 stored records. Seeds: tests/fuzz/make_corpus.py.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "common/raft/raft.h"
#include "common/raft/request_window.h"
#include "common/wire/log_message.h"
#include "tests/fuzz/round_trip.h"

namespace dtrain::test {
namespace {

using namespace raft;

constexpr unsigned kConfiguration = 250, kWindow = 251, kHardState = 252, kEntry = 253, kSnapshot = 254, kMostCouncil = 2;
constexpr std::size_t kMessages = 200;  // of one conversation

class SilentLog : public Log {
 public:
  using Log::write;
  void write(LogLevel, std::string_view, std::span<const LogField>) override {}
};

void check_configuration(const Configuration& configuration) {
  CHECK(configuration.voters.size() <= wire::kMostVoters && configuration.learners.size() <= wire::kMostLearners);
  CHECK(std::is_sorted(configuration.voters.begin(), configuration.voters.end()));
  for (const MemberId& id : configuration.learners) CHECK(!configuration.votes(id));
}

void check_message(std::uint16_t type, std::string_view input) {
  const auto decoded = wire::decode_raft(type, {5, 5}, input);
  if (!decoded) {
    CHECK(decoded.error().message.starts_with("could not decode "));
    return;
  }
  CHECK(wire::type_of(decoded->body) == type);
  if (const auto* request = std::get_if<wire::AppendRequest>(&decoded->body)) {
    CHECK(request->entries.size() <= wire::kEntriesPerMessage);
    std::uint64_t index = request->prev_index;
    for (const LogEntry& entry : request->entries) CHECK(entry.index == ++index && entry.payload.size() <= wire::kEntryBytes);
  }
  if (const auto* chunk = std::get_if<wire::SnapshotChunk>(&decoded->body)) check_configuration(chunk->configuration);
  const std::string encoded = wire::encode_raft(*decoded);
  CHECK(encoded.size() == wire::encoded_size(*decoded));
  const auto again = wire::decode_raft(type, {5, 5}, encoded);
  CHECK(again.has_value() && *again == *decoded);
}

void check_other(std::uint16_t type, std::string_view input) {
  const auto decoded = wire::decode_log(type, {5, 5}, input);
  if (!decoded) {
    CHECK(decoded.error().message.starts_with("could not decode "));
    return;
  }
  CHECK(wire::type_of(*decoded) == type);
  if (const auto* forward = std::get_if<wire::Forward>(&*decoded))
    CHECK(!forward->body.empty() && forward->body.size() <= wire::kEntryBytes);
  const auto again = wire::decode_log(type, {5, 5}, wire::encode_log(*decoded));
  CHECK(again.has_value() && *again == *decoded);
}

void converse(std::uint64_t voters, std::string_view input) {
  Stored disk;
  Configuration configuration;
  for (std::uint64_t id = 1; id < 2 * voters; ++id) configuration.voters.push_back({id, id});
  if (voters != 0) disk = found({1, {7, 7}}, configuration);
  SilentLog log;
  Raft member(Self{{1, 1}, 1, true}, {}, Rng(1), log, disk);
  Instant now{1000s};
  Outputs out;
  const auto give = [&](const Input& what) {
    member.step(now, what, out);
    while (out.persist) {
      const Persist persist = *std::exchange(out.persist, std::nullopt);
      store(disk, persist);
      member.step(now, Persisted{persist.token}, out);
    }
    CHECK(member.commit() <= member.last_index() && member.durable_index() == member.last_index());
    CHECK(member.memory_bytes() < std::size_t{64} << 20);
    out.clear();
  };
  give(Tick{});
  for (std::size_t count = 0; count < kMessages && input.size() >= 4; ++count) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(input[i]); };
    const std::uint16_t type = at(0);
    const MemberId sender{at(1), at(1)};
    const std::size_t length = std::min<std::size_t>(at(2) << 8 | at(3), input.size() - 4);
    if (type == 0) now += Duration(std::int64_t{1'000'000} * (at(2) << 8 | at(3)));
    if (type == 1) give(Propose{count, "payload"});
    if (type == 2) give(ChangeAsked{count, static_cast<ChangeKind>(at(3) % 4), sender});
    if (type == 3 && member.commit() > member.snapshot_index()) give(Snapshotted{member.commit(), "state"});
    if (type == 4) give(LeaderGone{sender});
    if (const auto message = wire::decode_raft(type, sender, input.substr(4, length))) give(Received{*message});
    else give(Tick{});
    input.remove_prefix(type < wire::kFirstRaftType ? 4 : 4 + length);
  }
  std::uint64_t index = disk.snapshot ? disk.snapshot->index : 0;
  for (const LogEntry& entry : disk.log) CHECK(entry.index == ++index);
}

}  // namespace
}  // namespace dtrain::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain::test;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] <= kMostCouncil) {
    converse(data[0], input);
  } else if (data[0] == kConfiguration) {
    if (const auto decoded = dtrain::wire::decode_configuration(input)) check_configuration(*decoded);
  } else if (data[0] == kWindow) {
    dtrain::raft::RequestWindow window;
    if (window.decode(input)) CHECK(window.encode() == input);
  } else if (data[0] == kHardState) {
    check_round_trip<dtrain::raft::HardState>(input);
  } else if (data[0] == kEntry) {
    check_round_trip<dtrain::raft::LogEntry>(input);
  } else if (data[0] == kSnapshot) {
    check_round_trip<dtrain::raft::StoredSnapshot>(input);
  } else if (data[0] >= dtrain::wire::kForwardType && data[0] <= dtrain::wire::kLeaseAnswerType) {
    check_other(data[0], input);
  } else {
    check_message(data[0], input);
  }
  return 0;
}
