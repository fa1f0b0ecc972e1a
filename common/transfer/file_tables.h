// What formats have in common whose checkpoints are directories of files that each say themselves whether they are whole. The table of
// contents of such a checkpoint is gathered from the tables of all its files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/transfer/format.h"

namespace dtrain::transfer {

inline constexpr std::size_t kGatheredFiles = 10'000;        // in one directory; more: refused
inline constexpr std::size_t kGatheredTextBytes = 64 << 20;  // of a file that is read whole; larger: refused unread
inline constexpr std::size_t kGatheredBytes = 256 << 20;     // of all tables

struct FileTable {
  // plain: only its size is known, and that it can be read. zips: one after the other, at least one.
  enum class Kind : unsigned char { plain, text, zips, safetensors };
  std::string name;
  std::uint64_t size = 0;
  Kind kind = Kind::plain;
  std::string table;  // text: the file itself
};

// zips or safetensors, as programs name such files; otherwise plain.
FileTable::Kind kind_by_ending(std::string_view name);

// Error{refused}: no further file's table may be gathered.
Status room_for_one_more(const std::vector<FileTable>& tables);

// Errors: as of Format::table; refused: `name` is no regular file. A file that should be zips and is something else counts as plain.
Result<FileTable> read_file_table(FileAccess& files, const std::string& name, FileTable::Kind kind);

std::string join_tables(const std::vector<FileTable>& tables);
Result<std::vector<FileTable>> split_tables(std::string_view joined);

// All of them as one checkpoint; `contents_name` is not among the files that it lists. Errors name the file.
Result<std::unique_ptr<Contents>> several_files(const std::vector<FileTable>& tables, std::string_view contents_name);

}  // namespace dtrain::transfer
