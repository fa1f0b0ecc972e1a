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

Result<std::string> megatron_table(FileAccess& files, std::string_view) {
  const auto names = files.names();
  if (!names) return fail(names.error());
  std::vector<FileTable> tables;
  std::uint64_t ranks = 1;
  for (const std::string& directory : *names) {
    if (place_of_directory(directory).empty()) continue;
    for (const std::string_view ending : {kWeights, kShares}) {
      const std::string name = directory + std::string(ending);
      if (tables.size() == kGatheredFiles) return bad_iteration("it has more than " + std::to_string(kGatheredFiles) + " files");
      auto file = read_rank_file(files, name);
      if (!file && file.error().code == ErrorCode::not_found) {
        if (ending == kWeights) return lacks_ranks(name + " is missing");
        continue;
      }
      if (!file) return fail(file.error());
      tables.push_back(std::move(*file));
      if (!is_first(name)) continue;
      const auto pickle = read_pickle(files, name);
      if (!pickle) return pickle;
      for (const std::string_view size : kSizes)
        ranks = std::min(kRanks, ranks * std::max<std::uint64_t>(1, pickled_number(*pickle, size)));
    }
  }
  return to_little_endian(ranks, kRankCountBytes) + join_tables(tables);
}

Result<std::unique_ptr<Contents>> parse_megatron(std::string_view table, std::string_view base) {
  if (table.size() < kRankCountBytes) return bad_iteration("its list of files is cut");
  const std::uint64_t ranks = from_little_endian(table.substr(0, kRankCountBytes));
  const auto tables = split_tables(table.substr(kRankCountBytes));
  if (!tables) return fail(tables.error());
  RankGrid weights, shares;
  std::string first;
  for (const FileTable& file : *tables) {
    if (!is_rank_file(file.name) || file.kind != FileTable::Kind::zips) return bad_iteration(file.name + " is not one of its files");
    const std::string_view directory = std::string_view(file.name).substr(0, file.name.find('/'));
    (file.name.ends_with(kWeights) ? weights : shares).add(place_of_directory(directory));
    if (is_first(file.name)) first = file.name;
  }
  if (first.empty()) return bad_iteration("it has no rank 0");
  if (const std::string hole = weights.hole(); !hole.empty()) return lacks_ranks("mp_rank_" + hole + " is missing");
  if (weights.places.size() < ranks)
    return lacks_ranks("only " + std::to_string(weights.places.size()) + " of " + std::to_string(ranks) + " ranks are there");
  if (!shares.places.empty() && shares.places != weights.places)
    return lacks_ranks("only some ranks have a file " + std::string(kShares.substr(1)));
  auto contents = several_files(*tables, first);
  if (contents) (*contents)->step = step_of_name(base);
  return contents;
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
    .named_clearly = [](std::string_view base) { return step_said_by(base).has_value(); },
    .step_of = step_of_name,
    .hint = &kMegatronTracker,
};

}  // namespace dtrain::transfer
