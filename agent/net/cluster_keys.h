// The cluster's keys. The key file (made by dtrainctl keygen, mode 0600, the same on all hosts) holds one or more
// CURVE key pairs: the first is the one that agents present, all are accepted. To rotate: append the new pair on all
// hosts, then move it to the front, then remove the old one, with SIGHUP after each step.
//
// A node's own key pair is derived from the cluster's secret and the node's id (BLAKE2b, then X25519), so that every
// holder of the file can verify by ZAP who is at the other end, and nothing else has to be distributed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/member_id.h"
#include "common/base/result.h"

namespace dtrain::net {

using CurveKey = std::array<std::uint8_t, 32>;
struct KeyPair {
  CurveKey public_key{}, secret_key{};
};

struct ClusterKeys {
  std::vector<KeyPair> pairs;  // the first is presented; at most kKeysInFile
};
inline constexpr std::size_t kKeysInFile = 8;

// Refuses a file that others may read or that belongs to another user (except root), a public key that does not
// belong to its secret key, and an empty file.
Result<ClusterKeys> read_key_file(const std::string& path);
// The text of a key file with one new pair. The caller wipes it.
std::string new_key_file();
KeyPair node_key(const KeyPair& cluster, const MemberId& node);
// The pair with which agents serve clients of other machines: separate, so that a client's public key of it opens no
// door between agents. The same on all agents.
KeyPair door_key(const KeyPair& cluster);
// First 16 hex digits of BLAKE2b of the public key: identifies keys in logs and identities.
std::string key_print(const CurveKey& public_key);

}  // namespace dtrain::net
