// dtrainctl checkpoints: lists what the ledger knows of a job's checkpoints; with --verify, has each verified on a host that has it,
// and each share on its own.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "common/node/callers.h"
#include "common/node/checkpoint_requests.h"
#include "common/node/part.h"
#include "common/node/relays.h"

namespace dtrain::node {

class CheckpointQueries final : public Part {
 public:
  CheckpointQueries(Context& context, Callers& callers, CheckpointRequests& requests, const Relays& relays)
      : Part(Runs::always), c_(context), callers_(callers), requests_(requests), relays_(relays) {}

  void checkpoints(const Request& e, const wire::CheckpointsRequest& q, const Caller& caller);
  void verified(const CheckpointVerified& e) override;
  void closed(ConnectionId connection) override;

 private:
  struct Verification {  // one `checkpoints --verify` under way
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    wire::CheckpointsReply reply;
    struct Asked {
      std::size_t view = 0;  // its index
      NodeId host;
      bool share = false;
    };
    std::map<std::uint64_t, Asked> awaited;  // by token
    std::set<std::size_t> damaged;           // views
  };
  void verify(Verification& v, const cluster::JobRecord& job, std::size_t view, const NodeId& host, transfer::CheckpointInfo info);
  void told(Verification& v, const Verification::Asked& asked, const Error& error) const;
  NodeId host_of(const cluster::CheckpointRecord& r) const;

  Context& c_;
  Callers& callers_;
  CheckpointRequests& requests_;
  const Relays& relays_;
  std::vector<Verification> verifications_;
};

}  // namespace dtrain::node
