#include "common/wire/control.h"

namespace dtrain::wire {

std::string to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid: return "invalid";
    case ErrorCode::not_found: return "not-found";
    case ErrorCode::unavailable: return "unavailable";
    case ErrorCode::refused: return "refused";
    case ErrorCode::limit: return "limit";
    case ErrorCode::io: return "io";
    case ErrorCode::damaged: return "damaged";
    case ErrorCode::internal: return "internal";
  }
  return "internal";
}

ErrorReply error_reply(const Error& e) {
  ErrorItem item;
  item.code = e.code;
  item.kind = to_string(e.code);
  item.message = e.message;
  item.next = e.next;
  return ErrorReply{{std::move(item)}};
}

std::string frame(const Message& m) {
  const std::string body = encode(m);
  const auto size = static_cast<std::uint32_t>(body.size());
  std::string out;
  out.reserve(4 + body.size());
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(size >> shift));
  out += body;
  return out;
}

Result<std::optional<Message>> Deframer::next() {
  const std::size_t have = buffer_.size() - start_;
  if (have < 4) return std::optional<Message>{};
  std::uint32_t size = 0;
  for (int i = 0; i < 4; ++i)
    size |= static_cast<std::uint32_t>(static_cast<unsigned char>(buffer_[start_ + static_cast<std::size_t>(i)])) << (8 * i);
  if (size > limits::kControlFrameBytes)
    return fail(ErrorCode::limit,
                "could not read control message: announced length " + std::to_string(size) + " is above the limit of " +
                    std::to_string(limits::kControlFrameBytes) + " bytes",
                "the sender is not a dtrainctl of this version");
  if (have < 4 + std::size_t{size}) return std::optional<Message>{};
  auto message = decode<Message>(std::string_view(buffer_).substr(start_ + 4, size));
  start_ += 4 + std::size_t{size};
  if (start_ == buffer_.size() || start_ > (64u << 10)) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  if (!message) return fail(message.error());
  if (message->format != kControlFormat)
    return fail(ErrorCode::invalid, "could not read control message: format " + std::to_string(message->format) + " is not spoken here",
                "use a dtrainctl of the agent's version");
  return std::optional<Message>(std::move(*message));
}

}  // namespace dtrain::wire
