#include "tests/sim/council/register_machine.h"

#include <cstring>

namespace dtrain::sim::council {
namespace {

constexpr std::size_t kPadding = 96;      // so that a snapshot takes several chunks also while little is remembered
constexpr std::uint64_t kClients = 0xc1;  // high half of their request ids

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0xff51afd7ed558ccdull;
  return hash ^ hash >> 29;
}

void put(std::string& out, std::uint64_t value) {
  char bytes[8];
  std::memcpy(bytes, &value, 8);
  out.append(bytes, 8);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  std::uint64_t get() {
    std::uint64_t value = 0;
    if (bytes_.size() < 8) {
      good_ = false;
      return 0;
    }
    std::memcpy(&value, bytes_.data(), 8);
    bytes_.remove_prefix(8);
    return value;
  }
  std::size_t left() const { return bytes_.size(); }
  bool good() const { return good_; }

 private:
  std::string_view bytes_;
  bool good_ = true;
};

}  // namespace

std::string encode_command(const Command& command) {
  std::string out;
  put(out, command.request);
  put(out, command.minted);
  return out;
}

std::optional<Command> decode_command(std::string_view bytes) {
  Reader in(bytes);
  Command command;
  command.request = in.get();
  command.minted = in.get();
  if (!in.good() || in.left() != 0) return std::nullopt;
  return command;
}

RegisterMachine::Outcome RegisterMachine::apply(const raft::LogEntry& entry) {
  Outcome outcome;
  applied_ = entry.index;
  elapsed_ = entry.elapsed;
  if (entry.kind == raft::EntryKind::command) {
    const auto command = decode_command(entry.payload);
    if (command) outcome = carry_out(*command, entry.index);
  }
  trail_ = mixed(trail_, entry.index);
  trail_ = mixed(trail_, entry.term << 8 | static_cast<std::uint64_t>(entry.kind) << 4 | static_cast<std::uint64_t>(outcome.done));
  trail_ = mixed(trail_, outcome.reading.chain);
  trail_ = mixed(trail_, static_cast<std::uint64_t>(entry.elapsed.count()));
  return outcome;
}

RegisterMachine::Outcome RegisterMachine::carry_out(const Command& command, std::uint64_t index) {
  using Verdict = raft::RequestWindow::Verdict;
  Outcome outcome;
  outcome.request = command.request;
  const auto judged = window_.judge({{kClients, command.request}, command.minted}, index);
  answers_.erase(answers_.begin(), answers_.lower_bound(index > window_entries_ ? index - window_entries_ : 0));
  switch (judged.verdict) {
    case Verdict::fresh:
      outcome.done = Done::executed;
      reading_ = {reading_.version + 1, command.request, mixed(reading_.chain, command.request)};
      outcome.reading = answers_[index] = reading_;
      break;
    case Verdict::repeated:
      outcome.done = Done::repeated;
      outcome.reading = answers_.at(judged.index);
      break;
    case Verdict::too_old:
    case Verdict::unminted: outcome.done = Done::refused;
  }
  return outcome;
}

std::string RegisterMachine::encode() const {
  std::string out;
  for (const std::uint64_t value : {reading_.version, reading_.request, reading_.chain, applied_, trail_,
                                    static_cast<std::uint64_t>(elapsed_.count()), static_cast<std::uint64_t>(answers_.size())})
    put(out, value);
  for (const auto& [index, reading] : answers_)
    for (const std::uint64_t value : {index, reading.version, reading.request, reading.chain}) put(out, value);
  out.append(kPadding, '.');
  out += window_.encode();
  return out;
}

bool RegisterMachine::decode(std::string_view bytes) {
  Reader in(bytes);
  reading_.version = in.get();
  reading_.request = in.get();
  reading_.chain = in.get();
  applied_ = in.get();
  trail_ = in.get();
  elapsed_ = Duration(static_cast<std::int64_t>(in.get()));
  answers_.clear();
  for (std::uint64_t left = in.get(); left > 0 && in.good(); --left) {
    const std::uint64_t index = in.get();
    Reading reading;
    reading.version = in.get();
    reading.request = in.get();
    reading.chain = in.get();
    answers_[index] = reading;
  }
  if (!in.good() || in.left() < kPadding) return false;
  return window_.decode(bytes.substr(bytes.size() - in.left() + kPadding)).has_value();
}

}  // namespace dtrain::sim::council
