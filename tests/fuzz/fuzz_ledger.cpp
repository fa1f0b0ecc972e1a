// The ledger's log, as a damaged or foreign disk may present it: a sequence of commands, each [type][2 bytes length]
// [body]. Nothing may crash or throw, and what is left must survive a snapshot and a replay unchanged.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/cluster/ledger.h"

namespace {

using dtrain::cluster::Command;
using dtrain::cluster::CommandType;
using dtrain::cluster::Ledger;

constexpr std::size_t kCommands = 64;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> log;
  while (input.size() >= 3 && log.size() < kCommands) {
    const auto type = static_cast<unsigned char>(input[0]);
    const std::size_t length = static_cast<unsigned char>(input[1]) + 256u * static_cast<unsigned char>(input[2]);
    const std::string_view body = input.substr(3, length);
    input.remove_prefix(3 + body.size());
    if (type > static_cast<unsigned char>(enum_last(CommandType{}))) continue;
    Command c;
    c.epoch = 1;
    c.at = dtrain::Instant(std::chrono::seconds(log.size()));
    c.type = static_cast<CommandType>(type);
    c.body = body;
    log.push_back(dtrain::wire::encode(c));
  }
  Ledger once, again;
  for (std::size_t i = 0; i < log.size(); ++i) once.apply(i + 1, log[i]);
  for (std::size_t i = 0; i < log.size(); ++i) again.apply(i + 1, log[i]);
  const std::string snapshot = once.snapshot();
  if (snapshot != again.snapshot()) std::abort();
  const auto restored = Ledger::restore(snapshot, 0);
  if (!restored || restored->snapshot() != snapshot) std::abort();
  return 0;
}
