#include "common/transfer/shard_files.h"

#include <algorithm>
#include <set>

#include "common/transfer/rank_files.h"
#include "common/transfer/zip_directory.h"

namespace dtrain::transfer {
namespace {

constexpr std::string_view kEnding = ".distcp", kBeginning = "__";
constexpr char kPickleBegin = '\x80', kPickleEnd = '.';

tl::unexpected<Error> bad_shards(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

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
  for (auto at = pickle.find(kEnding); at != pickle.npos; at = pickle.find(kEnding, at + 1)) {
    const auto begin = pickle.substr(0, at).rfind(kBeginning);
    if (begin == pickle.npos) continue;
    const std::string_view name = pickle.substr(begin, at + kEnding.size() - begin);
    if (is_shard(name)) names.emplace(name);
  }
  return names;
}

}  // namespace

bool is_shard(std::string_view name) {
  if (!name.starts_with(kBeginning) || !name.ends_with(kEnding)) return false;
  name.remove_prefix(kBeginning.size());
  if (name.size() < kEnding.size()) return false;
  name.remove_suffix(kEnding.size());
  const auto line = name.find('_');
  const auto number = [](std::string_view s) { return !s.empty() && s.find_first_not_of("0123456789") == s.npos; };
  return line != name.npos && number(name.substr(0, line)) && number(name.substr(line + 1));
}

Result<std::vector<std::string>> named_shards(const std::vector<FileTable>& tables, const std::string& below) {
  const auto metadata = std::ranges::find(tables, below + std::string(kShardMetadata), &FileTable::name);
  if (metadata == tables.end()) return fail(ErrorCode::not_found, below + std::string(kShardMetadata) + " is missing");
  const std::string it = below.empty() ? "it" : metadata->name;
  if (!is_whole_pickle(metadata->table)) return bad_shards(it + " is cut, or no pickle");
  std::vector<std::string> named;
  for (const std::string& name : shards_named_in(metadata->table)) named.push_back(below + name);
  if (named.empty()) return bad_shards(it + " names no files");
  return named;
}

Status check_shards(const std::vector<FileTable>& tables, const std::string& below) {
  const auto named = named_shards(tables, below);
  if (!named) return fail(named.error());
  for (const std::string& name : *named) {
    const auto shard = std::ranges::find(tables, name, &FileTable::name);
    if (shard == tables.end()) {
      const std::string of_rank = name.substr(0, name.find('_', below.size() + kBeginning.size()) + 1);
      const bool rank_is_here = std::ranges::any_of(tables, [&](const FileTable& file) { return file.name.starts_with(of_rank); });
      return rank_is_here ? bad_shards(name + " is missing") : lacks_ranks(name + " is missing");
    }
    if (shard->size == 0) return bad_shards(name + " is empty");
  }
  return {};
}

std::string lines_of(const std::vector<std::string>& names) {
  std::string lines;
  for (const std::string& name : names) lines += name + "\n";
  return lines;
}

std::string lacks_of_lines(std::string_view list, const std::vector<std::string>& names) {
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find('\n'));
    if (std::ranges::find(names, name) == names.end()) return std::string(name) + " is missing";
    list.remove_prefix(std::min(list.size(), name.size() + 1));
  }
  return "";
}

}  // namespace dtrain::transfer
