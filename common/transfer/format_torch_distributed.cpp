// Directories of torch.distributed.checkpoint (shard_files.h). Beside its files Megatron writes common.pt and metadata.json, Lightning
// meta.pt.
#include <algorithm>

#include "common/transfer/rank_files.h"
#include "common/transfer/selection.h"
#include "common/transfer/shard_files.h"
#include "common/transfer/step_name.h"

namespace dtrain::transfer {
namespace {

constexpr std::string_view kBesideEnding = ".pt", kBesideText = "metadata.json";

bool is_beside(std::string_view name) {
  return (name == kBesideText || name.ends_with(kBesideEnding)) && name.find('/') == name.npos && !is_ignored_name(name);
}

Result<std::string> shards_table(FileAccess& files, std::string_view) {
  const auto names = files.names();
  if (!names) return fail(names.error());
  std::vector<FileTable> tables;
  for (const std::string& name : *names) {
    if (name != kShardMetadata && !is_shard(name) && !is_beside(name)) continue;
    if (const Status room = room_for_one_more(tables); !room) return fail(room.error());
    auto file = read_file_table(files, name, name == kShardMetadata || name == kBesideText ? FileTable::Kind::text : FileTable::Kind::zips);
    if (!file) return fail(file.error());
    tables.push_back(std::move(*file));
  }
  return join_tables(tables);
}

Result<std::unique_ptr<Contents>> parse_shards(std::string_view joined, std::string_view base) {
  const auto tables = split_tables(joined);
  if (!tables) return fail(tables.error());
  if (const Status all = check_shards(*tables, ""); !all)
    return all.error().code == ErrorCode::not_found ? fail(ErrorCode::damaged, "it is not there") : fail(all.error());
  auto contents = several_files(*tables, kShardMetadata);
  if (contents) (*contents)->step = step_of_name(base);
  return contents;
}

Result<std::string> list_of_shards(FileAccess&, const std::vector<FileTable>& tables) {
  const auto named = named_shards(tables, "");
  return named ? lines_of(*named) : "";
}

}  // namespace

extern const Format kTorchDistributedFormat{
    .name = "torch-distributed",
    .seen_as = "a directory of torch.distributed.checkpoint whose name says a step",
    .named_as = "a directory with .metadata",
    .directory = true,
    .contents_name = [](std::string_view) { return std::string(kShardMetadata); },
    .contents_bytes = kGatheredBytes,
    .parse = parse_shards,
    .is_file_of = [](std::string_view name, std::string_view) { return name == kShardMetadata || is_shard(name) || is_beside(name); },
    .table = shards_table,
    .is_file_of_rank = is_shard,
    .list_of_all = list_of_shards,
    .lacks = lacks_of_lines,
    .named_clearly = [](std::string_view base) { return step_said_by(base).has_value(); },
    .step_of = step_of_name,
    .hint = &kMegatronTrackerIfThere,
};

}  // namespace dtrain::transfer
