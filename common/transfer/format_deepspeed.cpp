// Directories of DeepSpeed: global_stepN, with a file of torch.save for each rank's model and, with ZeRO, for each rank's share of the
// optimizer. `latest` beside them names the newest; it decides nothing.
#include <algorithm>
#include <array>

#include "common/transfer/deepspeed_states.h"
#include "common/transfer/rank_files.h"
#include "common/transfer/step_name.h"

namespace dtrain::transfer {
namespace {

constexpr std::array kFirstShare{kDeepspeedShare};

Result<std::string> deepspeed_table(FileAccess& files, std::string_view) {
  std::vector<FileTable> tables;
  const auto counts = read_deepspeed_files(files, "", tables);
  if (!counts) return counts;
  return *counts + join_tables(tables);
}

Result<std::unique_ptr<Contents>> parse_deepspeed(std::string_view table, std::string_view base) {
  const auto tables = split_tables(table.substr(std::min(table.size(), kDeepspeedCountBytes)));
  if (!tables) return fail(tables.error());
  for (const FileTable& file : *tables)
    if (!is_deepspeed_file(file.name) || file.kind != FileTable::Kind::zips)
      return fail(ErrorCode::damaged, file.name + " is not one of its files");
  if (auto all = check_deepspeed_files(table.substr(0, kDeepspeedCountBytes), *tables); !all) return fail(all.error());
  const bool whole_model = std::ranges::find(*tables, kDeepspeedModel, &FileTable::name) != tables->end();
  auto contents = several_files(*tables, whole_model ? kDeepspeedModel : kDeepspeedShare);
  if (contents) (*contents)->step = step_of_name(base);
  return contents;
}

Result<std::string> list_of_states(FileAccess& files, const std::vector<FileTable>& tables) {
  for (const std::string_view first : {kDeepspeedModel, kDeepspeedShare})
    if (std::ranges::find(tables, first, &FileTable::name) != tables.end()) return read_deepspeed_counts(files, std::string(first));
  return std::string();
}

std::string lacks_states(std::string_view list, const std::vector<std::string>& names) {
  std::vector<FileTable> tables;
  for (const std::string& name : names) tables.push_back({name, 0, FileTable::Kind::zips, ""});
  const auto all = check_deepspeed_files(list, tables);
  return all ? "" : all.error().message;
}

std::string same(std::string_view name) { return std::string(name); }
constexpr Hint kLatest = tracker_hint<same, same, true>("latest");

}  // namespace

extern const Format kDeepspeedFormat{
    .name = "deepspeed",
    .seen_as = "a directory global_stepN of DeepSpeed",
    .named_as = "a directory with mp_rank_00_model_states.pt",
    .directory = true,
    .contents_name = [](std::string_view) { return std::string(kDeepspeedModel); },
    .contents_bytes = kGatheredBytes,
    .parse = parse_deepspeed,
    .is_file_of = [](std::string_view name, std::string_view) { return is_deepspeed_file(name); },
    .other_contents = kFirstShare,
    .table = deepspeed_table,
    .is_file_of_rank = is_deepspeed_file,
    .list_of_all = list_of_states,
    .lacks = lacks_states,
    .named_clearly = [](std::string_view base) { return step_said_by(base).has_value(); },
    .step_of = step_of_name,
    .hint = &kLatest,
};

}  // namespace dtrain::transfer
