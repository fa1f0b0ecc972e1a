// Checkpoints whose ranks each write to their own host's disk: what one host has of one, and whether several hosts have all of it
// together. Only of formats with `is_file_of_rank`. Which hosts are asked, and where the shares are put together: common/cluster/restore.h.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/transfer/format.h"

namespace dtrain::transfer {

// Names, sizes and digests of one host's files, and the list of all: a host with more of them does not speak of them.
inline constexpr std::size_t kSharesBytes = 64 << 10;

// What one host has, whatever is missing; what is cut or no file of torch.save counts as missing, too. A host that cannot list all files
// (Format::list_of_all) tells of those of its ranks alone: others of the same names may differ from host to host.
struct SharesRead {
  std::string table;  // as Format::table
  Shares told;
};
// Errors: as of Format::table; not_found: no rank's file is here; limit: more than kSharesBytes would have to be told.
Result<SharesRead> read_shares(FileAccess& files, const Format& format, std::string_view base);
// All of them to be verified, as those of a checkpoint of their own.
Result<std::unique_ptr<Contents>> parse_shares(std::string_view table);

// True of the share that is noted with its place, also once its names are forgotten.
bool is_noted(std::uint64_t place, const Shares& noted, const CheckpointInfo& share);

// What some hosts have together.
struct Together {
  std::vector<std::string> names;  // sorted
  std::uint64_t bytes = 0;
  bool known = false;  // one of them knows which files there must be
  std::string lacks;   // what is missing; "": nothing, if `known`
  bool whole() const { return known && lacks.empty(); }
};
// Files of one name that differ, or different lists, are of different checkpoints: such shares are never whole together.
Together together(const Format& format, const std::vector<const Shares*>& shares);

}  // namespace dtrain::transfer
