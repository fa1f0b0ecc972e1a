// Records that an agent reads back from its own disk, which may have rotted or belong to another version: the first
// byte chooses the type.
#include <cstddef>
#include <cstdint>

#include "common/cluster/ledger.h"
#include "common/job/job_spec.h"
#include "common/raft/log_entry.h"
#include "common/task/shim_spec.h"
#include "common/transfer/checkpoint.h"
#include "tests/fuzz/round_trip.h"

namespace {

using Check = void (*)(std::string_view);

// One line per type that is stored. New ones go to the end: the corpus names them by position.
constexpr Check kStored[] = {
    dtrain::test::check_round_trip<dtrain::job::JobSpec>,
    dtrain::test::check_round_trip<dtrain::raft::LogEntry>,
    dtrain::test::check_round_trip<dtrain::raft::StoredSnapshot>,
    dtrain::test::check_round_trip<dtrain::task::ShimSpec>,
    dtrain::test::check_round_trip<dtrain::task::Exit>,
    dtrain::test::check_round_trip<dtrain::transfer::CheckpointInfo>,
    dtrain::test::check_round_trip<dtrain::cluster::Command>,
    dtrain::test::check_round_trip<dtrain::cluster::LedgerState>,
    dtrain::test::check_round_trip<dtrain::cluster::BeginGeneration>,
    dtrain::test::check_round_trip<dtrain::cluster::HostReport>,
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || data[0] >= std::size(kStored)) return 0;
  kStored[data[0]](std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  return 0;
}
