// The text of a client's key file, which dtrainctl keygen --client writes and dtrainctl --key-file reads. It holds
// the client's own pair, whose public half the agents name under access.keys, and the public keys with which the
// agents serve clients; none of the cluster's secrets.
//
//     # dtrain client key of one user. ...
//     dtrain-client-v1 <public, 64 hex digits> <secret, 64 hex digits>
//     dtrain-agents-v1 <public, 64 hex digits>
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/wire/key_file.h"

namespace dtrain::wire {

struct ClientKeyText {
  KeyText own;
  std::vector<KeyBytes> agents;  // 1 to kKeyPairs: one for each pair in the cluster's key file, in the same order
};
std::string render_client_key_file(const ClientKeyText& keys);
// ErrorCode::damaged. Errors name the line; secrets never appear in messages.
Result<ClientKeyText> parse_client_key_file(std::string_view text);

}  // namespace dtrain::wire
