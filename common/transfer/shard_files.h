// The files that torch.distributed.checkpoint writes for all ranks of a step: __RANK_N.distcp, each of them zips of torch.save one after
// the other, and .metadata, which is renamed into place last and names the others. They are in a directory of their own, or in those that
// Hugging Face's Trainer has for FSDP. The metadata is a pickle, which is never run: only the names of files are looked for in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/transfer/file_tables.h"

namespace dtrain::transfer {

inline constexpr std::string_view kShardMetadata = ".metadata";

bool is_shard(std::string_view name);  // "__0_12.distcp"; without its directory

// The shards that the metadata among these tables names, each with `below` before it: "" or "DIRECTORY/", as the names of the tables have.
// Errors: damaged; not_found: the metadata is not there.
Result<std::vector<std::string>> named_shards(const std::vector<FileTable>& tables, const std::string& below);

// Are all of them among the tables? Errors: those of named_shards(), damaged, or that of lacks_ranks().
Status check_shards(const std::vector<FileTable>& tables, const std::string& below);

// Names as Format::list_of_all may tell them, one a line, and Format::lacks of such a list.
std::string lines_of(const std::vector<std::string>& names);
std::string lacks_of_lines(std::string_view list, const std::vector<std::string>& names);

}  // namespace dtrain::transfer
