// Hostile bytes from other agents, a cluster key file of any bytes, and what an agent remembers of its
// cluster. The first byte chooses: 0 a header (the second byte says on which link), 251 a member record, 252
// to 254 what a fact holds, 255 a key file, else a body of that type. Seeds: tests/fuzz/make_corpus.py.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/gossip/membership.h"
#include "common/node/host_facts.h"
#include "common/wire/key_file.h"
#include "common/wire/log_message.h"
#include "tests/fuzz/round_trip.h"
#include "tests/unit/wire/gossip_samples.h"

namespace dtrain::test {
namespace {

constexpr unsigned kHeaderChoice = 0, kRecordChoice = 251, kResourcesChoice = 252, kFreeChoice = 253, kCouncilChoice = 254,
                   kKeyFileChoice = 255;

void check_rumour(const Rumour& rumour) {
  CHECK(!rumour.subject.none() && rumour.reason.size() <= kProseBytes);
  CHECK(rumour.kind != RumourKind::alive || rumour.identity);
  CHECK(rumour.kind != RumourKind::fact || rumour.fact);
  CHECK(!rumour.fact || rumour.fact->value.size() <= kFactBytes);
  CHECK(!rumour.identity || rumour.identity->id == rumour.subject);
}
template <class T>
void check_limits(const T& body) {
  if constexpr (requires { body.rumours; }) {
    CHECK(body.rumours.size() <= kRumoursPerMessage);
    for (const Rumour& rumour : body.rumours) check_rumour(rumour);
  }
  if constexpr (std::is_same_v<T, JoinReply> || std::is_same_v<T, SyncRows>) {
    CHECK(body.rows.size() <= kRowsPerMessage);
    for (const Row& row : body.rows) {
      CHECK(row.identity && !row.identity->name.empty() && row.identity->name.size() <= limits::kNameBytes);
      CHECK(row.facts.size() <= kFactKeys);
    }
  }
}

void check_body(std::uint16_t type, std::string_view input) {
  const auto decoded = decode_gossip(type, input);
  if (!decoded) {
    CHECK(decoded.error().message.starts_with("could not decode "));
    return;
  }
  CHECK(type_of(*decoded) == type);
  std::visit([](const auto& body) { check_limits(body); }, *decoded);
  const std::string encoded = encode_gossip(*decoded);
  CHECK(encoded.size() == encoded_size(*decoded));
  // Left out formats of an identity are written, so that what filled its lane may not fit again.
  if (encoded.size() > (lane_of(*decoded) == Lane::gossip ? kGossipMessageBytes : kBulkMessageBytes)) return;
  const auto again = decode_gossip(type, encoded);
  CHECK(again.has_value());
  CHECK(same_body(*again, *decoded));
}

void check_envelope(std::string_view input) {
  if (input.empty()) return;
  const auto link = static_cast<unsigned char>(input[0]);
  input.remove_prefix(1);
  const MemberId self{9, 9}, ours = link & 1 ? fixed_header().cluster : MemberId{};
  const LinkAuth auth{(link & 2) != 0, (link & 4) != 0, link & 8 ? fixed_header().sender : MemberId{}};
  const std::size_t body_bytes = link & 16 ? kBulkMessageBytes : 100;
  const CheckedHeader checked = check_header(input, body_bytes, self, ours, auth);
  if (!checked.ok) {
    CHECK(static_cast<std::size_t>(checked.drop) < kDrops);
    return;
  }
  const PeerHeader& header = checked.header;
  CHECK(input.size() <= kHeaderBytes && header.format == kPeerFormat && (lane_of(header.type) || is_log_type(header.type)));
  CHECK(!header.sender.none() && header.sender != self);
  CHECK(!auth.curve || auth.cluster_key || header.sender == auth.node);
  CHECK(header.type <= 2 || (!ours.none() && header.cluster == ours && !(auth.curve && auth.cluster_key)));
  const CheckedHeader again = check_header(encode_header(header), body_bytes, self, ours, auth);
  CHECK(again.ok && encode_header(again.header) == encode_header(header));
}

void check_key_file(std::string_view input) {
  const auto keys = parse_key_file(input);
  if (!keys) {
    CHECK(!keys.error().message.empty());
    return;
  }
  CHECK(!keys->empty() && keys->size() <= kKeyPairs);
  const std::string text = render_key_file(*keys);
  const auto again = parse_key_file(text);
  CHECK(again.has_value() && render_key_file(*again) == text);
}

void check_record(std::string_view input) {
  const auto record = gossip::MemberRecord::decode(input);
  if (!record) {
    CHECK(record.error().message.starts_with("could not read "));
    return;
  }
  const std::string encoded = record->encode();
  const auto again = gossip::MemberRecord::decode(encoded);
  CHECK(again.has_value() && again->encode() == encoded && again->book == record->book);
}

}  // namespace
}  // namespace dtrain::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain::test;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case kHeaderChoice: check_envelope(input); break;
    case kRecordChoice: check_record(input); break;
    case kResourcesChoice: check_round_trip<dtrain::node::HostFacts>(input); break;
    case kFreeChoice: check_round_trip<dtrain::node::FreeFacts>(input); break;
    case kCouncilChoice: check_round_trip<dtrain::node::CouncilFact>(input); break;
    case kKeyFileChoice: check_key_file(input); break;
    default: check_body(data[0], input);
  }
  return 0;
}
