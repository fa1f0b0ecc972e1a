#include "common/transfer/shares.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "common/transfer/digest.h"
#include "common/transfer/file_tables.h"

namespace dtrain::transfer {
namespace {

constexpr std::size_t kTableDigest = 32;      // hexadecimal digits
constexpr std::size_t kBytesBesideName = 64;  // of a file in an encoded Shares: its size, its digest, and the keys

std::vector<std::string> names_here(FileAccess& files, const Format& format, std::string_view base, const std::vector<std::string>& above) {
  std::vector<std::string> names;
  for (const std::string& name : above) {
    if (format.is_file_of(name, base)) {
      names.push_back(name);
      continue;
    }
    if (name.find('.') != name.npos) continue;  // no directory of a rank
    for (const std::string& inner : files.names(name).value_or(std::vector<std::string>{}))
      if (std::string path = name + "/" + inner; format.is_file_of(path, base)) names.push_back(std::move(path));
  }
  std::ranges::sort(names);
  return names;
}

FileTable::Kind kind_of(const Format& format, std::string_view name) {
  const FileTable::Kind kind = kind_by_ending(name);
  return kind == FileTable::Kind::plain && format.is_text(name) ? FileTable::Kind::text : kind;
}

Result<std::vector<FileTable>> read_tables(FileAccess& files, const Format& format, std::string_view base) {
  const auto above = files.names();
  if (!above) return fail(above.error());
  std::vector<FileTable> tables;
  for (const std::string& name : names_here(files, format, base, *above)) {
    if (const Status room = room_for_one_more(tables); !room) return fail(room.error());
    auto file = read_file_table(files, name, kind_of(format, name));
    if (!file && file.error().code == ErrorCode::damaged) continue;
    if (!file) return fail(file.error());
    if (format.is_file_of_rank(name) && file->kind != FileTable::Kind::zips) continue;
    tables.push_back(std::move(*file));
  }
  return tables;
}

}  // namespace

Result<SharesRead> read_shares(FileAccess& files, const Format& format, std::string_view base) {
  auto tables = read_tables(files, format, base);
  if (!tables) return fail(tables.error());
  auto list = format.list_of_all(files, *tables);
  if (!list) return fail(list.error());
  const auto of_rank = [&](const FileTable& file) { return format.is_file_of_rank(file.name); };
  if (std::ranges::none_of(*tables, of_rank)) return fail(ErrorCode::not_found, "no rank's file is there");
  if (list->empty()) std::erase_if(*tables, std::not_fn(of_rank));
  SharesRead read{join_tables(*tables), {{}, std::move(*list)}};
  std::size_t bytes = read.told.list.size();
  for (const FileTable& file : *tables) {
    read.told.files.push_back({file.name, file.size, blake2b_hex(join_tables({file})).substr(0, kTableDigest)});
    bytes += file.name.size() + kTableDigest + kBytesBesideName;
  }
  if (bytes > kSharesBytes) return fail(ErrorCode::limit, "it has too many files to speak of");
  return read;
}

Result<std::unique_ptr<Contents>> parse_shares(std::string_view table) {
  const auto tables = split_tables(table);
  if (!tables) return fail(tables.error());
  return several_files(*tables, "");
}

bool is_noted(std::uint64_t place, const Shares& noted, const CheckpointInfo& share) {
  return place == share.place && (noted.files.empty() || noted == share.shares);
}

Together together(const Format& format, const std::vector<const Shares*>& shares) {
  Together all;
  std::map<std::string, const Shares::File*> files;
  const std::string* list = nullptr;
  std::string conflict;
  for (const Shares* some : shares) {
    for (const Shares::File& file : some->files) {
      const auto [known, added] = files.try_emplace(file.name, &file);
      if (added) all.bytes += file.size;
      else if (*known->second != file && conflict.empty()) conflict = file.name + " differs among the hosts that have it";
    }
    if (some->list.empty()) continue;
    if (list != nullptr && *list != some->list && conflict.empty()) conflict = "its hosts name different files";
    list = &some->list;
  }
  for (const auto& [name, file] : files) all.names.push_back(name);
  all.known = list != nullptr;
  if (!conflict.empty()) all.lacks = std::move(conflict);
  else all.lacks = all.known ? format.lacks(*list, all.names) : "the file that names all others is missing";
  return all;
}

}  // namespace dtrain::transfer
