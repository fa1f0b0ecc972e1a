// The keys that a dtrainctl on another machine needs: common/wire/client_key_file.h.
#pragma once

#include <string>
#include <vector>

#include "agent/net/cluster_keys.h"
#include "common/base/result.h"

namespace dtrain::net {

struct ClientKeys {
  KeyPair own;
  std::vector<CurveKey> agents;  // any of them serves; at least one
};

// Refuses a file that others may read, and a public key that does not belong to its secret key.
Result<ClientKeys> read_client_key_file(const std::string& path);

}  // namespace dtrain::net
