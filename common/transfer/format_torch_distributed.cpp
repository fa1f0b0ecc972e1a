// Directories of torch.distributed.checkpoint: __RANK_N.distcp, each of them zips of torch.save one after the other, and .metadata, which
// is renamed into place last. The metadata is a pickle, which is never run: only the names of files are looked for in it. Beside them
// Megatron writes common.pt and metadata.json, Lightning meta.pt.
#include <algorithm>
#include <set>

#include "common/transfer/file_tables.h"
#include "common/transfer/manifest.h"
#include "common/transfer/rank_files.h"
#include "common/transfer/selection.h"
#include "common/transfer/step_name.h"
#include "common/transfer/zip_directory.h"

namespace dtrain::transfer {
namespace {

constexpr std::string_view kMetadata = ".metadata", kShardEnding = ".distcp", kShardBeginning = "__", kBesideEnding = ".pt",
                           kBesideText = "metadata.json";
constexpr char kPickleBegin = '\x80', kPickleEnd = '.';

tl::unexpected<Error> bad_shards(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

// "__0_12.distcp"
bool is_shard(std::string_view name) {
  if (!name.starts_with(kShardBeginning) || !name.ends_with(kShardEnding)) return false;
  name.remove_prefix(kShardBeginning.size());
  if (name.size() < kShardEnding.size()) return false;
  name.remove_suffix(kShardEnding.size());
  const auto line = name.find('_');
  const auto number = [](std::string_view s) { return !s.empty() && s.find_first_not_of("0123456789") == s.npos; };
  return line != name.npos && number(name.substr(0, line)) && number(name.substr(line + 1));
}

bool is_beside(std::string_view name) {
  return (name == kBesideText || name.ends_with(kBesideEnding)) && name.find('/') == name.npos && !is_ignored_name(name);
}

// Pickles since protocol 4 come in frames with a length, and long texts and bytes between them: enough to see a cut. Of older ones only the
// first and the last byte are known.
bool is_whole_pickle(std::string_view pickle) {
  if (pickle.size() < 3 || pickle.front() != kPickleBegin || pickle.back() != kPickleEnd) return false;
  for (std::string_view rest = pickle.substr(2); !rest.empty();) {
    const char code = rest.front();
    const bool wide = code == '\x95' || code == '\x8d' || code == '\x8e' || code == '\x96', narrow = code == 'X' || code == 'B';
    if (!wide && !narrow) return true;
    const std::size_t head = wide ? 9 : 5;
    if (rest.size() < head || from_little_endian(rest.substr(1, head - 1)) > rest.size() - head) return false;
    rest.remove_prefix(head + static_cast<std::size_t>(from_little_endian(rest.substr(1, head - 1))));
  }
  return true;
}

// A pickle has texts as they are.
std::set<std::string> shards_named_in(std::string_view pickle) {
  std::set<std::string> names;
  for (auto at = pickle.find(kShardEnding); at != pickle.npos; at = pickle.find(kShardEnding, at + 1)) {
    const auto begin = pickle.substr(0, at).rfind(kShardBeginning);
    if (begin == pickle.npos) continue;
    const std::string_view name = pickle.substr(begin, at + kShardEnding.size() - begin);
    if (is_shard(name)) names.emplace(name);
  }
  return names;
}

Result<std::string> shards_table(FileAccess& files, std::string_view) {
  const auto names = files.names();
  if (!names) return fail(names.error());
  std::vector<FileTable> tables;
  for (const std::string& name : *names) {
    if (name != kMetadata && !is_shard(name) && !is_beside(name)) continue;
    if (tables.size() == kGatheredFiles) return bad_shards("it has more than " + std::to_string(kGatheredFiles) + " files");
    auto file = read_file_table(files, name, name == kMetadata || name == kBesideText ? FileTable::Kind::text : FileTable::Kind::zips);
    if (!file) return fail(file.error());
    tables.push_back(std::move(*file));
  }
  return join_tables(tables);
}

Result<std::unique_ptr<Contents>> parse_shards(std::string_view joined, std::string_view base) {
  const auto tables = split_tables(joined);
  if (!tables) return fail(tables.error());
  const auto find_file = [&](std::string_view name) { return std::ranges::find(*tables, name, &FileTable::name); };
  const auto metadata = find_file(kMetadata);
  if (metadata == tables->end()) return bad_shards("it is not there");
  const std::string& pickle = metadata->table;
  if (!is_whole_pickle(pickle)) return bad_shards("it is cut, or no pickle");
  const auto named = shards_named_in(pickle);
  if (named.empty()) return bad_shards("it names no files");
  for (const std::string& name : named) {
    const auto shard = find_file(name);
    if (shard == tables->end()) {
      const std::string of_rank = name.substr(0, name.find('_', kShardBeginning.size()) + 1);
      const bool rank_is_here = std::ranges::any_of(*tables, [&](const FileTable& file) { return file.name.starts_with(of_rank); });
      return rank_is_here ? bad_shards(name + " is missing") : lacks_ranks(name + " is missing");
    }
    if (shard->size == 0) return bad_shards(name + " is empty");
  }
  auto contents = several_files(*tables, kMetadata);
  if (contents) (*contents)->step = step_of_name(base);
  return contents;
}

Result<std::string> list_of_shards(FileAccess&, const std::vector<FileTable>& tables) {
  const auto metadata = std::ranges::find(tables, kMetadata, &FileTable::name);
  std::string list;
  if (metadata == tables.end() || !is_whole_pickle(metadata->table)) return list;
  for (const std::string& name : shards_named_in(metadata->table)) list += name + "\n";
  return list;
}

std::string lacks_shards(std::string_view list, const std::vector<std::string>& names) {
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find('\n'));
    if (std::ranges::find(names, name) == names.end()) return std::string(name) + " is missing";
    list.remove_prefix(std::min(list.size(), name.size() + 1));
  }
  return "";
}

}  // namespace

extern const Format kTorchDistributedFormat{
    .name = "torch-distributed",
    .seen_as = "a directory of torch.distributed.checkpoint whose name says a step",
    .named_as = "a directory with .metadata",
    .directory = true,
    .contents_name = [](std::string_view) { return std::string(kMetadata); },
    .contents_bytes = kGatheredBytes,
    .parse = parse_shards,
    .is_file_of = [](std::string_view name, std::string_view) { return name == kMetadata || is_shard(name) || is_beside(name); },
    .table = shards_table,
    .is_file_of_rank = is_shard,
    .list_of_all = list_of_shards,
    .lacks = lacks_shards,
    .named_clearly = [](std::string_view base) { return step_said_by(base).has_value(); },
    .step_of = step_of_name,
    .hint = &kMegatronTrackerIfThere,
};

}  // namespace dtrain::transfer
