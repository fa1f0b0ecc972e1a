#include "common/transfer/file_tables.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/transfer/manifest.h"
#include "common/transfer/safetensors.h"
#include "common/transfer/unproved_bytes.h"
#include "common/transfer/zip_check.h"
#include "common/transfer/zip_directory.h"

namespace dtrain::transfer {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::string_view kTensorsEnding = ".safetensors";
constexpr std::array<std::string_view, 5> kSavedEndings{".pt", ".pth", ".bin", ".ckpt", ".distcp"};

std::string with_length(std::string_view bytes) { return to_little_endian(bytes.size(), kLengthBytes).append(bytes); }

// Takes what with_length() made from the beginning of `bytes`.
bool take_with_length(std::string_view& bytes, std::string_view& out) {
  if (bytes.size() < kLengthBytes) return false;
  const std::uint64_t length = from_little_endian(bytes.substr(0, kLengthBytes));
  bytes.remove_prefix(kLengthBytes);
  if (length > bytes.size()) return false;
  out = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return true;
}

tl::unexpected<Error> about_file(const std::string& name, const Error& e) { return fail(e.code, name + ": " + e.message); }

class SeveralFiles : public Contents {
 public:
  void add(std::unique_ptr<Contents> one) {
    for (std::size_t i = 0; i < one->part_count(); ++i) parts_.emplace_back(all_.size(), i);
    all_.push_back(std::move(one));
  }
  std::size_t part_count() const override { return parts_.size(); }
  Part part(std::size_t i) const override { return owner(i).part(parts_[i].second); }
  std::unique_ptr<PartCheck> check(std::size_t i) const override { return owner(i).check(parts_[i].second); }
  std::string damage(std::size_t i) const override { return owner(i).damage(parts_[i].second); }

 private:
  const Contents& owner(std::size_t i) const { return *all_[parts_[i].first]; }
  std::vector<std::unique_ptr<Contents>> all_;
  std::vector<std::pair<std::size_t, std::size_t>> parts_;  // which of them, which of its parts
};

// From the end to the beginning, since the end of a zip says where it begins.
Status read_zips(FileAccess& files, FileTable& file) {
  std::vector<std::string> tables;
  for (std::uint64_t end = file.size; end > 0;) {
    auto table = read_zip_table(files, file.name, end);
    if (!table && table.error().code == ErrorCode::refused) return {};
    if (!table) return fail(table.error());
    end = zip_place(*table).begin;
    tables.push_back(std::move(*table));
  }
  if (tables.empty()) return {};
  file.kind = FileTable::Kind::zips;
  for (const std::string& table : tables) file.table.insert(0, with_length(table));
  return {};
}

}  // namespace

FileTable::Kind kind_by_ending(std::string_view name) {
  if (name.ends_with(kTensorsEnding)) return FileTable::Kind::safetensors;
  const bool saved = std::ranges::any_of(kSavedEndings, [&](std::string_view ending) { return name.ends_with(ending); });
  return saved ? FileTable::Kind::zips : FileTable::Kind::plain;
}

Status room_for_one_more(const std::vector<FileTable>& tables) {
  if (tables.size() < kGatheredFiles) return {};
  return fail(ErrorCode::refused, "it has more than " + std::to_string(kGatheredFiles) + " files");
}

Result<FileTable> read_file_table(FileAccess& files, const std::string& name, FileTable::Kind kind) {
  const auto size = files.size(name);
  if (!size && size.error().code == ErrorCode::damaged)
    return fail(ErrorCode::refused, size.error().message + ", and checkpoints with directories or links in them are not supported");
  if (!size) return fail(size.error());
  FileTable file{name, *size, FileTable::Kind::plain, ""};
  if (kind == FileTable::Kind::zips) {
    if (const auto read = read_zips(files, file); !read) return about_file(name, read.error());
    // A power cut may leave zeros where bytes had been written. Neither a zip nor a pickle begins with one.
    if (file.kind == FileTable::Kind::zips || file.size == 0) return file;
    const auto first = files.read(name, 0, 1);
    if (!first) return about_file(name, first.error());
    if (first->front() == '\0') return fail(ErrorCode::damaged, name + " begins with zeros");
    return file;
  }
  if (kind == FileTable::Kind::plain) return file;
  if (kind == FileTable::Kind::text && *size > kGatheredTextBytes) return fail(ErrorCode::refused, name + " is too large");
  auto table = kind == FileTable::Kind::text ? files.read(name, 0, *size) : read_safetensors_table(files, name);
  if (!table) return about_file(name, table.error());
  file.kind = kind;
  file.table = std::move(*table);
  return file;
}

std::string join_tables(const std::vector<FileTable>& tables) {
  std::string joined;
  for (const FileTable& file : tables) {
    joined += with_length(file.name) + to_little_endian(file.size, kLengthBytes) + static_cast<char>(file.kind);
    joined += with_length(file.table);
  }
  return joined;
}

Result<std::vector<FileTable>> split_tables(std::string_view joined) {
  std::vector<FileTable> tables;
  while (!joined.empty()) {
    std::string_view name, table;
    const bool named = take_with_length(joined, name) && joined.size() > kLengthBytes && is_inner_name(name);
    if (!named || !room_for_one_more(tables) || static_cast<unsigned char>(joined[kLengthBytes]) > 3)
      return fail(ErrorCode::damaged, "it has too many files, or none");
    FileTable file{std::string(name), from_little_endian(joined.substr(0, kLengthBytes)),
                   static_cast<FileTable::Kind>(joined[kLengthBytes]), ""};
    joined.remove_prefix(kLengthBytes + 1);
    if (!take_with_length(joined, table)) return fail(ErrorCode::damaged, "its list of files is cut");
    file.table = table;
    tables.push_back(std::move(file));
  }
  return tables;
}

Result<std::unique_ptr<Contents>> several_files(const std::vector<FileTable>& tables, std::string_view contents_name) {
  auto all = std::make_unique<SeveralFiles>();
  for (const FileTable& file : tables) {
    if (file.name != contents_name) all->files.push_back({file.name, file.size, true});
    if (file.kind == FileTable::Kind::plain) all->add(std::make_unique<UnprovedBytes>(file.name, 0, file.size));
    if (file.kind == FileTable::Kind::safetensors) {
      auto one = safetensors_contents(file.table, file.name);
      if (!one) return about_file(file.name, one.error());
      all->add(std::move(*one));
    }
    if (file.kind != FileTable::Kind::zips) continue;
    std::string_view rest = file.table, table;
    std::uint64_t covered = 0;
    while (!rest.empty()) {
      if (!take_with_length(rest, table) || zip_place(table).begin != covered)
        return fail(ErrorCode::damaged, file.name + ": its zips do not follow each other");
      covered = zip_place(table).end;
      auto one = zip_contents(table, file.name);
      if (!one) return about_file(file.name, one.error());
      all->add(std::move(*one));
    }
    if (covered != file.size) return fail(ErrorCode::damaged, file.name + ": its zips do not end where it ends");
  }
  return std::unique_ptr<Contents>(std::move(all));
}

}  // namespace dtrain::transfer
