#include <array>
#include <utility>

#include "common/wire/raft.h"
#include "common/wire/raft_fields.h"

namespace dtrain::wire {
namespace {

using positional::Sizer;

constexpr std::size_t kConfigurationBytes = 32 * (kMostVoters + kMostLearners);  // a member takes 19 bytes

constexpr const char* kNames[] = {"vote request",   "vote reply",  "append request", "append reply", "snapshot chunk",
                                  "snapshot reply", "timeout now", "fenced",         "hello",        "welcome"};
static_assert(std::size(kNames) == kRaftTypes);

template <class T>
struct Framed {
  RaftHeader header;
  T body;
};
template <class T>
struct FramedRef {
  const RaftHeader& header;
  const T& body;
};
template <class V, class T>
void fields(V& v, const FramedRef<T>& x) {
  v.nested("header", x.header);
  v.nested("body", x.body);
}
template <class T>
void fields(positional::Get& v, Framed<T>& x) {
  v.nested("header", x.header);
  v.nested("body", x.body);
}

Error undecodable(std::string_view name, const std::string& cause, ErrorCode code = ErrorCode::damaged) {
  return {code, "could not decode " + std::string(name) + ": " + cause, "the sender may run another version of dtrain"};
}

template <class T>
Result<RaftMessage> read(const Document& document, const char* name) {
  // Both must be present, since fields that were left out are not checked.
  const Reader root = document.root();
  const auto array = [](const Reader& r) { return r.kind() == Reader::Kind::array; };
  if (!array(root) || root.size() < 2 || !array(root.at(0)) || !array(root.at(1)))
    return fail(undecodable(name, "expected a header and a body"));
  Framed<T> out{};
  DecodeError error;
  bool unknown = false;
  if (positional::get_value(document.root(), out, error, unknown) && unknown) error.set("a value of a newer version");
  if (error.failed()) return fail(undecodable(name, error.text()));
  return RaftMessage{out.header, RaftBody(std::move(out.body))};
}

using Read = Result<RaftMessage> (*)(const Document&, const char* name);
template <std::size_t... I>
constexpr std::array<Read, kRaftTypes> make_readers(std::index_sequence<I...>) {
  return {read<std::variant_alternative_t<I, RaftBody>>...};
}
constexpr auto kReaders = make_readers(std::make_index_sequence<kRaftTypes>());

template <class Sink>
void put(Sink& sink, const RaftMessage& message) {
  std::visit(
      [&](const auto& body) {
        positional::put_value(sink, FramedRef<std::decay_t<decltype(body)>>{message.header, body});
      },
      message.body);
}

}  // namespace

bool Configuration::votes(const MemberId& id) const { return std::binary_search(voters.begin(), voters.end(), id); }
bool Configuration::learns(const MemberId& id) const { return std::binary_search(learners.begin(), learners.end(), id); }

std::string encode_configuration(const Configuration& configuration) {
  Writer w;
  positional::put_value(w, configuration);
  return w.take();
}

Result<Configuration> decode_configuration(std::string_view bytes) {
  DecodeLimits limits;
  limits.bytes = kConfigurationBytes;
  limits.elements = kMostVoters + kMostLearners;
  limits.depth = kMessageDepth;
  const auto document = Document::parse(bytes, limits);
  if (!document) return fail(document.error());
  Configuration out;
  DecodeError error;
  bool unknown = false;
  if (positional::get_value(document->root(), out, error, unknown) && unknown) error.set("a value of a newer version");
  if (error.failed()) return fail(undecodable("configuration", error.text()));
  return out;
}

std::string encode_raft(const RaftMessage& message) {
  Writer w;
  w.reserve(encoded_size(message));
  put(w, message);
  return w.take();
}

Result<RaftMessage> decode_raft(std::uint16_t type, const MemberId& sender, std::string_view bytes) {
  if (type < kFirstRaftType || type >= kFirstRaftType + kRaftTypes)
    return fail(undecodable("message", "unknown type " + std::to_string(type)));
  const std::size_t at = type - kFirstRaftType;
  if (bytes.size() > kRaftMessageBytes)
    return fail(undecodable(kNames[at], "longer than " + std::to_string(kRaftMessageBytes) + " bytes", ErrorCode::limit));
  DecodeLimits limits;
  limits.bytes = kRaftMessageBytes;
  limits.elements = kEntriesPerMessage;
  limits.depth = kMessageDepth;
  const auto document = Document::parse(bytes, limits);
  if (!document) return fail(document.error());
  auto message = kReaders[at](*document, kNames[at]);
  if (message) message->header.sender = sender;
  return message;
}

std::size_t encoded_size(const LogEntry& entry) {
  Sizer sizer;
  positional::put_value(sizer, entry);
  return sizer.total();
}

std::size_t encoded_size(const RaftMessage& message) {
  Sizer sizer;
  put(sizer, message);
  return sizer.total();
}

}  // namespace dtrain::wire
