// Directories of Orbax (JAX): a step's directory, renamed from `...orbax-checkpoint-tmp...` when it is done, with _CHECKPOINT_METADATA and
// a directory for each item. Arrays are in OCDBT databases, or in files of Zarr, of which only the sizes are known.
#include <algorithm>
#include <charconv>

#include "common/transfer/file_tables.h"
#include "common/transfer/manifest.h"
#include "common/transfer/ocdbt.h"
#include "common/transfer/selection.h"
#include "common/transfer/step_name.h"
#include "common/transfer/text_walk.h"
#include "common/transfer/zip_directory.h"

namespace dtrain::transfer {
namespace {

constexpr std::string_view kCheckpointMetadata = "_CHECKPOINT_METADATA", kTreeMetadata = "_METADATA", kUnfinished = "orbax-checkpoint-tmp",
                           kNamesDatabase = "\"use_ocdbt\": true";
constexpr std::size_t kOrbaxDepth = 8;  // directories in directories
constexpr std::size_t kLeastBytes = 8;

tl::unexpected<Error> bad_orbax(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

std::string_view last_of(std::string_view name) { return name.substr(name.rfind('/') + 1); }
std::string directory_of(const std::string& name) { return name.substr(0, name.size() - last_of(name).size()); }

bool is_text(std::string_view name) {
  const std::string_view last = last_of(name);
  return last == kCheckpointMetadata || last == kTreeMetadata || last == kOcdbtManifest;
}

Status gather(FileAccess& files, const std::string& directory, std::size_t depth, std::vector<FileTable>& tables) {
  const auto names = files.names(directory);
  if (!names) return fail(names.error());
  if (depth > kOrbaxDepth)
    return fail(ErrorCode::refused, "it has more than " + std::to_string(kOrbaxDepth) + " directories in each other");
  for (const std::string& last : *names) {
    if (is_ignored_name(last)) continue;
    const std::string name = directory.empty() ? last : directory + "/" + last;
    if (files.names(name)) {
      if (auto below = gather(files, name, depth + 1, tables); !below) return below;
      continue;
    }
    if (const Status room = room_for_one_more(tables); !room) return room;
    auto file = read_file_table(files, name, is_text(name) ? FileTable::Kind::text : FileTable::Kind::plain);
    if (!file) return fail(file.error());
    tables.push_back(std::move(*file));
  }
  return {};
}

Result<std::string> orbax_table(FileAccess& files, std::string_view base) {
  if (base.find(kUnfinished) != base.npos) return fail(ErrorCode::refused, "its writer has not renamed it yet");
  std::vector<FileTable> tables;
  if (auto gathered = gather(files, "", 0, tables); !gathered) return fail(gathered.error());
  LeastBytes least;
  for (const FileTable& file : tables)
    if (last_of(file.name) == kOcdbtManifest)
      if (auto read = read_ocdbt(files, directory_of(file.name), least); !read) return fail(read.error());
  for (FileTable& file : tables) {
    const auto needed = least.find(file.name);
    if (needed == least.end()) continue;
    if (file.kind == FileTable::Kind::plain) file.table = to_little_endian(needed->second, kLeastBytes);
    least.erase(needed);
  }
  if (!least.empty()) return bad_orbax(least.begin()->first + " is missing");
  return join_tables(tables);
}

std::int64_t orbax_step(std::string_view base) {
  std::int64_t step = 0;
  const auto read = std::from_chars(base.data(), base.data() + base.size(), step);
  return read.ec == std::errc{} && read.ptr == base.data() + base.size() && step >= 0 ? step : step_of_name(base);
}

bool is_json(std::string_view text) {
  JsonWalk walk;
  return text.starts_with('{') && walk.feed(text) && walk.ended();
}

Result<std::unique_ptr<Contents>> parse_orbax(std::string_view joined, std::string_view base) {
  const auto tables = split_tables(joined);
  if (!tables) return fail(tables.error());
  const auto has = [&](const std::string& name) { return std::ranges::find(*tables, name, &FileTable::name) != tables->end(); };
  if (!has(std::string(kCheckpointMetadata))) return bad_orbax("it is not there");
  if (tables->size() == 1) return bad_orbax("nothing is beside it");
  for (const FileTable& file : *tables) {
    const std::string_view last = last_of(file.name);
    if ((last == kCheckpointMetadata || last == kTreeMetadata) && !is_json(file.table)) return bad_orbax(file.name + " is cut, or no JSON");
    if (last == kTreeMetadata && file.table.find(kNamesDatabase) != std::string::npos &&
        !has(directory_of(file.name) + std::string(kOcdbtManifest)))
      return bad_orbax("no " + std::string(kOcdbtManifest) + " is beside " + file.name);
    if (file.kind == FileTable::Kind::plain && from_little_endian(file.table.substr(0, kLeastBytes)) > file.size)
      return bad_orbax(file.name + " is cut");
  }
  auto contents = several_files(*tables, kCheckpointMetadata);
  if (contents) (*contents)->step = orbax_step(base);
  return contents;
}

}  // namespace

extern const Format kOrbaxFormat{
    .name = "orbax",
    .seen_as = "a directory of Orbax, called by its step",
    .named_as = "a directory with _CHECKPOINT_METADATA",
    .directory = true,
    .contents_name = [](std::string_view) { return std::string(kCheckpointMetadata); },
    .contents_bytes = kGatheredBytes,
    .parse = parse_orbax,
    .is_file_of = [](std::string_view name, std::string_view) { return is_inner_name(name) && !is_ignored_name(last_of(name)); },
    .table = orbax_table,
    .named_clearly =
        [](std::string_view base) {
          const bool number = !base.empty() && base.find_first_not_of("0123456789") == base.npos;
          return (number || step_said_by(base)) && base.find(kUnfinished) == base.npos;
        },
    .step_of = orbax_step,
};

}  // namespace dtrain::transfer
