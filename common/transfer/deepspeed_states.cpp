#include "common/transfer/deepspeed_states.h"

#include <algorithm>
#include <array>

#include "common/transfer/manifest.h"
#include "common/transfer/rank_files.h"
#include "common/transfer/selection.h"
#include "common/transfer/zip_directory.h"

namespace dtrain::transfer {
namespace {

constexpr std::string_view kStates = "_states.pt", kModel = "mp_rank_#_model_states.pt",
                           kModelShare = "zero_pp_rank_#_mp_rank_#_model_states.pt",  // ZeRO 3
    kOptimizerShare = "zero_pp_rank_#_mp_rank_#_optim_states.pt";
constexpr std::array<std::string_view, 2> kPrecisions{"bf16_", "fp16_"};  // may stand before an optimizer's share
constexpr std::size_t kCountBytes = kDeepspeedCountBytes / 3;

// What the first model file says of all ranks; 0: it does not.
struct Counts {
  std::uint64_t data_parallel = 0, model_parallel = 0, zero_stage = 0;
};

tl::unexpected<Error> bad_ranks(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

Counts counts_in(std::string_view pickle) {
  const auto zero = pickle.find("zero_optimization");
  return {pickled_number(pickle, "dp_world_size"), pickled_number(pickle, "mp_world_size"),
          zero == pickle.npos ? 0 : pickled_number(pickle.substr(zero), "stage")};
}

}  // namespace

bool is_deepspeed_file(std::string_view name) {
  return name.ends_with(kStates) && !is_ignored_name(name) && name.find('/') == name.npos && is_inner_name(name);
}

Result<std::string> read_deepspeed_files(FileAccess& files, const std::string& directory, std::vector<FileTable>& tables) {
  const auto names = files.names(directory);
  if (!names) return fail(names.error());
  std::string first;
  for (const std::string& last : *names) {
    if (!is_deepspeed_file(last)) continue;
    if (const Status room = room_for_one_more(tables); !room) return fail(room.error());
    const std::string name = directory.empty() ? last : directory + "/" + last;
    auto file = read_rank_file(files, name);
    if (!file) return fail(file.error());
    if (last == kDeepspeedModel || (first.empty() && last == kDeepspeedShare)) first = name;
    tables.push_back(std::move(*file));
  }
  if (first.empty()) return fail(ErrorCode::not_found, std::string(kDeepspeedModel) + " is not there");
  return read_deepspeed_counts(files, first);
}

Result<std::string> read_deepspeed_counts(FileAccess& files, const std::string& first) {
  const auto pickle = read_pickle(files, first);
  if (!pickle) return pickle;
  const Counts counts = counts_in(*pickle);
  return to_little_endian(counts.data_parallel, kCountBytes) + to_little_endian(counts.model_parallel, kCountBytes) +
         to_little_endian(counts.zero_stage, kCountBytes);
}

Status check_deepspeed_files(std::string_view counts_bytes, const std::vector<FileTable>& tables) {
  if (counts_bytes.size() != kDeepspeedCountBytes) return bad_ranks("its list of files is cut");
  const auto number = [&](std::size_t i) { return from_little_endian(counts_bytes.substr(i * kCountBytes, kCountBytes)); };
  const Counts counts{number(0), number(1), number(2)};
  RankGrid models, model_shares, optimizer_shares;
  for (const FileTable& file : tables) {
    std::string_view name = std::string_view(file.name).substr(file.name.rfind('/') + 1);
    for (const std::string_view precision : kPrecisions)
      if (name.starts_with(precision)) name.remove_prefix(precision.size());
    models.add(numbers_in_name(kModel, name));
    model_shares.add(numbers_in_name(kModelShare, name));
    optimizer_shares.add(numbers_in_name(kOptimizerShare, name));
  }
  if (models.places.empty() && model_shares.places.empty()) return bad_ranks("it has no model");
  if (optimizer_shares.places.empty() && (counts.zero_stage > 0 || !model_shares.places.empty()))
    return lacks_ranks("the optimizer's states are missing");
  std::uint64_t model_ranks = counts.model_parallel;  // of model parallelism, as many as any file shows
  if (!models.places.empty()) model_ranks = std::max(model_ranks, models.extent()[0]);
  for (const RankGrid* shares : {&model_shares, &optimizer_shares})
    if (!shares->places.empty()) model_ranks = std::max(model_ranks, shares->extent()[1]);
  struct Kind {
    const RankGrid& grid;
    std::string_view pattern;
    RankPlace least;
  };
  for (const Kind& kind : {Kind{models, kModel, {model_ranks}}, Kind{model_shares, kModelShare, {counts.data_parallel, model_ranks}},
                           Kind{optimizer_shares, kOptimizerShare, {counts.data_parallel, model_ranks}}}) {
    if (kind.grid.places.empty()) continue;
    const auto complain = [&](const std::string& what) { return lacks_ranks("of its files " + std::string(kind.pattern) + " " + what); };
    if (const std::string hole = kind.grid.hole(); !hole.empty()) return complain("that of rank " + hole + " is missing");
    const RankPlace extent = kind.grid.extent();
    for (std::size_t i = 0; i < extent.size(); ++i)
      if (extent[i] < kind.least[i])
        return complain("only those of " + std::to_string(extent[i]) + " of " + std::to_string(kind.least[i]) + " ranks are there");
  }
  return {};
}

}  // namespace dtrain::transfer
