// Hostile bytes from other founders. The first byte chooses: 128 a report; 0 a conversation: a founder of
// three is told one report after the other, each [what, sender, length in two bytes, bytes]; 252 a stored
// record. Seeds: tests/fuzz/make_corpus.py.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "common/cluster/formation.h"

namespace dtrain::test {
namespace {

using namespace cluster::formation;

constexpr unsigned kConversation = 0, kRecord = 252;
constexpr std::size_t kReports = 200;  // of one conversation
enum What : unsigned { kPassing, kEstablished, kAdmitted, kWithout, kTold };

void check_report(std::string_view input) {
  const auto decoded = wire::decode_formation(input);
  if (!decoded) {
    CHECK(!decoded.error().message.empty());
    return;
  }
  CHECK(decoded->promise.none() || decoded->promise.has(decoded->promise.proposer));
  const std::string encoded = wire::encode_formation(*decoded);
  CHECK(encoded.size() == wire::encoded_size(*decoded) && encoded.size() <= wire::kFormationBytes);
  const auto again = wire::decode_formation(encoded);
  CHECK(again.has_value() && *again == *decoded);
}

void check_record(std::string_view input) {
  const auto decoded = Record::decode(input);
  if (!decoded) {
    CHECK(!decoded.error().message.empty());
    return;
  }
  CHECK(*Record::decode(decoded->encode()) == *decoded);
}

void converse(std::string_view input) {
  Formation founder({{1, 1}, {"h1", "h2", "h3"}, "h1", {}, {}}, {}, Rng(1));
  Instant now{1000s};
  Record disk;
  const auto give = [&](const Input& what) {
    Outputs out;
    // An answer may leave in the step that promises something new: it says what was on the disk then.
    const auto step = [&](const Input& one) {
      founder.step(now, one, out);
      for (const Send& send : std::exchange(out.sends, {}))
        CHECK(send.report.promise == disk.promise && encoded_size(send.report) <= wire::kFormationBytes);
    };
    step(what);
    while (out.persist) {
      const Persist persist = *std::exchange(out.persist, std::nullopt);
      CHECK(persist.record.withdrawn.size() <= wire::kMostWithdrawn);
      CHECK(persist.begin.has_value() == (persist.record.started && !disk.started));
      disk = *Record::decode(persist.record.encode());
      step(Persisted{});
    }
    CHECK(founder.record() == disk);
    CHECK(!founder.status().empty() || founder.deadline() == kNever);
  };
  give(Tick{});
  for (std::size_t count = 0; count < kReports && input.size() >= 4; ++count) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(input[i]); };
    const unsigned what = at(0) % (kTold + 1);
    const MemberId sender{at(1), at(1)};
    const std::size_t length = what == kTold ? std::min<std::size_t>(at(2) << 8 | at(3), input.size() - 4) : 0;
    if (what == kPassing) now += Duration(std::int64_t{1'000'000} * (at(2) << 8 | at(3)));
    if (what == kEstablished && disk.started) give(Established{});
    if (what == kAdmitted && founder.cluster().none()) give(Admitted{{9, 9}});
    if (what == kWithout) (void)founder.form_without({at(1) % 2 == 0 ? "h2" : "h3"});
    if (auto report = wire::decode_formation(input.substr(4, length)); report && what == kTold) {
      // A round is drawn at random: nobody would guess it.
      if (report->echo == 1) {
        Outputs out;
        FormationReport question = *report;
        question.asks = true;
        founder.step(now, Received{sender, question}, out);
        CHECK(!out.persist || out.sends.empty() || out.sends.front().to == report->seat);
        for (const Send& send : out.sends) report->echo = send.report.round;
        if (out.persist) {
          disk = *Record::decode(out.persist->record.encode());
          give(Persisted{});
        }
      }
      give(Received{sender, *report});
    } else {
      give(Tick{});
    }
    input.remove_prefix(4 + length);
  }
}

}  // namespace
}  // namespace dtrain::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain::test;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == kConversation) converse(input);
  else if (data[0] == kRecord) check_record(input);
  else check_report(input);
  return 0;
}
