#include "common/wire/client_key_file.h"

#include <algorithm>
#include <optional>

namespace dtrain::wire {
namespace {

constexpr std::string_view kOwn = "dtrain-client-v1", kAgents = "dtrain-agents-v1", kCluster = "dtrain-key-v1";
constexpr std::string_view kHead =
    "# dtrain client key of one user: for dtrainctl --agent HOST:PORT --key-file THIS, mode 0600.\n"
    "# Own pair, known to agents by access.keys; then what agents of the cluster serve clients with.\n";
constexpr const char* kNext = "have an administrator make one with dtrainctl keygen --client FILE";

auto damaged(const std::string& cause) {
  return fail(ErrorCode::damaged, cause, kNext);  // the caller names the file
}

}  // namespace

std::string render_client_key_file(const ClientKeyText& keys) {
  constexpr std::size_t kLineBytes = 160;
  std::string out;
  out.reserve(kHead.size() + kLineBytes * (1 + keys.agents.size()));  // so that growing leaves no copy of the secret in freed memory
  out.append(kHead).append(kOwn).append(" ");
  append_key(out, keys.own.public_key);
  out += ' ';
  append_key(out, keys.own.secret_key);
  out += '\n';
  for (const KeyBytes& agents : keys.agents) {
    out.append(kAgents).append(" ");
    append_key(out, agents);
    out += '\n';
  }
  return out;
}

Result<ClientKeyText> parse_client_key_file(std::string_view text) {
  if (text.size() > kKeyFileBytes) return damaged("longer than " + std::to_string(kKeyFileBytes) + " bytes");
  ClientKeyText keys;
  bool own = false;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    // The content of a line is never quoted: it may be a secret in the wrong place.
    const auto wrong = [number](const std::string& cause) { return damaged("line " + std::to_string(number) + ": " + cause); };
    const std::string_view word = next_key_word(line);
    if (word.empty() || word.front() == '#') continue;
    if (word == kCluster) return wrong("it is the key of a cluster, which no client needs");
    if (word != kOwn && word != kAgents) return wrong("begins neither with " + std::string(kOwn) + " nor with " + std::string(kAgents));
    const auto public_key = parse_key(next_key_word(line));
    if (!public_key) return wrong("the public key is not of 64 hexadecimal digits");
    if (word == kOwn) {
      const auto secret_key = parse_key(next_key_word(line));
      if (!secret_key) return wrong("the secret key is not of 64 hexadecimal digits");
      if (own) return wrong("a second pair of its own");
      own = true;
      keys.own = {*public_key, *secret_key};
    } else {
      if (std::ranges::find(keys.agents, *public_key) != keys.agents.end()) return wrong("the same key a second time");
      if (keys.agents.size() == kKeyPairs) return wrong("more than " + std::to_string(kKeyPairs) + " keys of agents");
      keys.agents.push_back(*public_key);
    }
    if (!next_key_word(line).empty()) return wrong("has more than its keys");
  }
  if (!own) return damaged("it holds no pair of its own");
  if (keys.agents.empty()) return damaged("it holds no key of agents");
  return keys;
}

}  // namespace dtrain::wire
