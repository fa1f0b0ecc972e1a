#include "common/raft/request_window.h"

#include <utility>

namespace dtrain::raft {

namespace {

constexpr std::size_t kRecordBytes = 24;  // index, id: big endian

void put(std::string& out, std::uint64_t value) {
  for (int shift = 56; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
}
std::uint64_t get(std::string_view bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = at; i < at + 8; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

Status damaged(const char* why) {
  return fail(ErrorCode::damaged, std::string("could not read the request window: ") + why, "take the snapshot of another member");
}

}  // namespace

RequestWindow::Judged RequestWindow::judge(const RequestId& request, std::uint64_t index) {
  forget_before(index > window_ ? index - window_ : 0);
  if (request.id.none() || request.minted >= index) return {Verdict::unminted, 0};
  if (index - request.minted > window_) return {Verdict::too_old, 0};
  const auto [known, fresh] = applied_.try_emplace(request.id, index);
  if (fresh) {
    order_.push_back({index, request.id});
    return {Verdict::fresh, index};
  }
  if (rules_.hold(Rule::applied_once)) return {Verdict::repeated, known->second};
  return {Verdict::fresh, index};
}

// An entry this old was minted before it was applied, so a repetition of its request is too old by now.
void RequestWindow::forget_before(std::uint64_t index) {
  for (; !order_.empty() && order_.front().index < index; order_.pop_front()) applied_.erase(order_.front().id);
}

std::string RequestWindow::encode() const {
  std::string out;
  out.reserve(order_.size() * kRecordBytes);
  for (const Applied& applied : order_) {
    put(out, applied.index);
    put(out, applied.id.high);
    put(out, applied.id.low);
  }
  return out;
}

Status RequestWindow::decode(std::string_view bytes) {
  if (bytes.size() % kRecordBytes != 0) return damaged("a torn record");
  if (bytes.size() / kRecordBytes > window_ + 1) return damaged("more records than the window holds");
  std::map<MemberId, std::uint64_t> applied;
  std::deque<Applied> order;
  std::uint64_t before = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kRecordBytes) {
    const Applied record{get(bytes, at), {get(bytes, at + 8), get(bytes, at + 16)}};
    if (record.index <= before) return damaged("records out of order");
    if (record.id.none() || !applied.emplace(record.id, record.index).second) return damaged("a request without an id, or twice");
    before = record.index;
    order.push_back(record);
  }
  applied_ = std::move(applied);
  order_ = std::move(order);
  return {};
}

}  // namespace dtrain::raft
