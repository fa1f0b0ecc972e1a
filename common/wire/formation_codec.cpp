#include <algorithm>
#include <set>

#include "common/wire/formation.h"
#include "common/wire/formation_fields.h"

namespace dtrain::wire {
namespace {

constexpr std::uint32_t kElements = 64;  // of any list; the lists here are shorter and have limits of their own

Error undecodable(const std::string& cause) {
  return {ErrorCode::damaged, "could not decode formation report: " + cause, "the sender may run another version of dtrain"};
}

}  // namespace

bool Founding::has(const MemberId& id) const {
  return std::any_of(members.begin(), members.end(), [&](const Founder& one) { return one.id == id; });
}

const char* defect(Founding& x) {
  if (x.none()) return x.members.empty() && x.proposer.none() ? nullptr : "a founding without a cluster";
  std::set<MemberId> ids;
  for (std::size_t i = 0; i < x.members.size(); ++i) {
    if (i > 0 && x.members[i - 1].seat >= x.members[i].seat) return "founders out of order";
    if (!ids.insert(x.members[i].id).second) return "a founder in two places";
  }
  return x.has(x.proposer) ? nullptr : "a founding that its proposer does not belong to";
}

std::string encode_formation(const FormationReport& report) {
  Writer w;
  w.reserve(encoded_size(report));
  positional::put_value(w, report);
  return w.take();
}

Result<FormationReport> decode_formation(std::string_view bytes) {
  DecodeLimits limits;
  limits.bytes = kFormationBytes;
  limits.elements = kElements;
  limits.depth = kMessageDepth;
  const auto document = Document::parse(bytes, limits);
  if (!document) return fail(document.error());
  FormationReport out;
  DecodeError error;
  bool unknown = false;
  if (positional::get_value(document->root(), out, error, unknown) && unknown) error.set("a value of a newer version");
  if (error.failed()) return fail(undecodable(error.text()));
  return out;
}

std::size_t encoded_size(const FormationReport& report) {
  positional::Sizer sizer;
  positional::put_value(sizer, report);
  return sizer.total();
}

}  // namespace dtrain::wire
