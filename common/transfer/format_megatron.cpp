// Directories of Megatron: iter_000000N, with a directory mp_rank_TT, mp_rank_TT_PPP or mp_rank_TT_PPP_EEE for each rank of tensor,
// pipeline and expert parallelism. latest_checkpointed_iteration.txt beside them has the number of the newest; it decides nothing. What
// newer versions write as distributed checkpoints is in format_torch_distributed.cpp.
#include <algorithm>
#include <array>

#include "common/transfer/manifest.h"
#include "common/transfer/rank_files.h"
#include "common/transfer/step_name.h"
#include "common/transfer/zip_directory.h"

namespace dtrain::transfer {
namespace {

constexpr std::string_view kWeights = "/model_optim_rng.pt", kShares = "/distrib_optim.pt";
constexpr std::array<std::string_view, 3> kRankPatterns{"mp_rank_#", "mp_rank_#_#", "mp_rank_#_#_#"};
constexpr std::string_view kFirstRank = "mp_rank_00/model_optim_rng.pt";
constexpr std::array<std::string_view, 2> kFirstOfMore{"mp_rank_00_000/model_optim_rng.pt", "mp_rank_00_000_000/model_optim_rng.pt"};
constexpr std::array<std::string_view, 3> kSizes{"tensor_model_parallel_size", "pipeline_model_parallel_size",
                                                 "expert_model_parallel_size"};
constexpr std::size_t kRankCountBytes = 8;

tl::unexpected<Error> bad_iteration(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

RankPlace place_of_directory(std::string_view name) {
  for (const std::string_view pattern : kRankPatterns)
    if (RankPlace place = numbers_in_name(pattern, name); !place.empty()) return place;
  return {};
}

bool is_rank_file(std::string_view name) {
  for (const std::string_view ending : {kWeights, kShares})
    if (name.ends_with(ending)) return !place_of_directory(name.substr(0, name.size() - ending.size())).empty();
  return false;
}

bool is_first(std::string_view name) { return name == kFirstRank || std::ranges::find(kFirstOfMore, name) != kFirstOfMore.end(); }

// How many ranks there are by that first file, in kRankCountBytes.
Result<std::string> read_rank_count(FileAccess& files, const std::string& first) {
  const auto pickle = read_pickle(files, first);
  if (!pickle) return pickle;
  std::uint64_t ranks = 1;
  for (const std::string_view size : kSizes) ranks = std::min(kRanks, ranks * std::max<std::uint64_t>(1, pickled_number(*pickle, size)));
  return to_little_endian(ranks, kRankCountBytes);
}

Result<std::string> megatron_table(FileAccess& files, std::string_view) {
  const auto names = files.names();
  if (!names) return fail(names.error());
  std::vector<FileTable> tables;
  std::string count = to_little_endian(1, kRankCountBytes);
  for (const std::string& directory : *names) {
    if (place_of_directory(directory).empty()) continue;
    for (const std::string_view ending : {kWeights, kShares}) {
      const std::string name = directory + std::string(ending);
      if (const Status room = room_for_one_more(tables); !room) return fail(room.error());
      auto file = read_rank_file(files, name);
      if (!file && file.error().code == ErrorCode::not_found) {
        if (ending == kWeights) return lacks_ranks(name + " is missing");
        continue;
      }
      if (!file) return fail(file.error());
      tables.push_back(std::move(*file));
      if (!is_first(name)) continue;
      auto said = read_rank_count(files, name);
      if (!said) return said;
      count = std::move(*said);
    }
  }
  return count + join_tables(tables);
}

// `count`: of read_rank_count().
Status check_ranks(std::string_view count, const std::vector<std::string>& names) {
  RankGrid weights, shares;
  for (const std::string& name : names)
    (name.ends_with(kWeights) ? weights : shares).add(place_of_directory(std::string_view(name).substr(0, name.find('/'))));
  if (std::ranges::none_of(names, is_first)) return bad_iteration("it has no rank 0");
  if (const std::string hole = weights.hole(); !hole.empty()) return lacks_ranks("mp_rank_" + hole + " is missing");
  const std::uint64_t ranks = from_little_endian(count);
  if (weights.places.size() < ranks)
    return lacks_ranks("only " + std::to_string(weights.places.size()) + " of " + std::to_string(ranks) + " ranks are there");
  if (!shares.places.empty() && shares.places != weights.places)
    return lacks_ranks("only some ranks have a file " + std::string(kShares.substr(1)));
  return {};
}

Result<std::unique_ptr<Contents>> parse_megatron(std::string_view table, std::string_view base) {
  if (table.size() < kRankCountBytes) return bad_iteration("its list of files is cut");
  const auto tables = split_tables(table.substr(kRankCountBytes));
  if (!tables) return fail(tables.error());
  std::vector<std::string> names;
  for (const FileTable& file : *tables) {
    if (!is_rank_file(file.name) || file.kind != FileTable::Kind::zips) return bad_iteration(file.name + " is not one of its files");
    names.push_back(file.name);
  }
  if (const Status all = check_ranks(table.substr(0, kRankCountBytes), names); !all) return fail(all.error());
  auto contents = several_files(*tables, *std::ranges::find_if(names, is_first));
  if (contents) (*contents)->step = step_of_name(base);
  return contents;
}

Result<std::string> list_of_ranks(FileAccess& files, const std::vector<FileTable>& tables) {
  const auto first = std::ranges::find_if(tables, is_first, &FileTable::name);
  return first == tables.end() ? std::string() : read_rank_count(files, first->name);
}

std::string lacks_some_ranks(std::string_view list, const std::vector<std::string>& names) {
  const Status all = check_ranks(list, names);
  return all ? "" : all.error().message;
}

}  // namespace

extern const Format kMegatronFormat{
    .name = "megatron",
    .seen_as = "a directory iter_000000N of Megatron",
    .named_as = "a directory with mp_rank_00/model_optim_rng.pt",
    .directory = true,
    .contents_name = [](std::string_view) { return std::string(kFirstRank); },
    .contents_bytes = kGatheredBytes,
    .parse = parse_megatron,
    .is_file_of = [](std::string_view name, std::string_view) { return is_rank_file(name); },
    .other_contents = kFirstOfMore,
    .table = megatron_table,
    .is_file_of_rank = is_rank_file,
    .list_of_all = list_of_ranks,
    .lacks = lacks_some_ranks,
    .named_clearly = [](std::string_view base) { return step_said_by(base).has_value(); },
    .step_of = step_of_name,
    .hint = &kMegatronTracker,
};

}  // namespace dtrain::transfer
