// Directories of Hugging Face's Trainer: checkpoint-STEP, with a model in one or several files and trainer_state.json, which is written
// last. What all ranks write together is in directories within that: global_stepN of DeepSpeed, or those of torch.distributed.checkpoint
// for FSDP.
#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "common/transfer/deepspeed_states.h"
#include "common/transfer/file_tables.h"
#include "common/transfer/manifest.h"
#include "common/transfer/rank_files.h"
#include "common/transfer/selection.h"
#include "common/transfer/shard_files.h"
#include "common/transfer/step_name.h"

namespace dtrain::transfer {
namespace {

constexpr std::string_view kTrainerState = "trainer_state.json", kModelIndexEnding = ".index.json", kRandomState = "rng_state_#.pth";
constexpr std::array<std::string_view, 5> kWholeModels{"model.safetensors", "pytorch_model.bin", "adapter_model.safetensors",
                                                       "adapter_model.bin", "pytorch_model_fsdp.bin"};
constexpr std::string_view kDirectory = "checkpoint-", kArguments = "training_args.bin";  // the latter is in no other program's directories
constexpr std::string_view kDeepspeedDirectory = "global_step", kShardedModel = "pytorch_model_fsdp_", kShardedOptimizer = "optimizer_";
constexpr std::string_view kFirstShard = "__0_", kFirstOfDeepspeed = "zero_pp_rank_0_mp_rank_00_";
constexpr std::size_t kIndexedFiles = 10'000;

tl::unexpected<Error> bad_trainer(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

bool is_trainer_text(std::string_view name) { return name == kTrainerState || name == kShardMetadata || name.ends_with(kModelIndexEnding); }

FileTable::Kind kind_of(std::string_view name) { return is_trainer_text(name) ? FileTable::Kind::text : kind_by_ending(name); }

bool is_numbered(std::string_view name, std::string_view beginning) {
  return name.starts_with(beginning) && name.size() > beginning.size() &&
         name.find_first_not_of("0123456789", beginning.size()) == name.npos;
}

// Whose files a directory within holds, by its name.
enum class Inner : unsigned char { foreign, deepspeed, shards };
Inner inner_of(std::string_view directory) {
  if (is_numbered(directory, kDeepspeedDirectory)) return Inner::deepspeed;
  return is_numbered(directory, kShardedModel) || is_numbered(directory, kShardedOptimizer) ? Inner::shards : Inner::foreign;
}

// "" and all of it, if it is not in a directory.
std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
  const auto slash = name.find('/');
  if (slash == name.npos) return {"", name};
  return {name.substr(0, slash), name.substr(slash + 1)};
}

bool is_trainer_file(std::string_view name, std::string_view) {
  const auto [directory, last] = split_name(name);
  if (!is_inner_name(name)) return false;
  if (directory.empty()) return inner_of(last) == Inner::foreign;
  if (inner_of(directory) == Inner::deepspeed) return is_deepspeed_file(last);
  return inner_of(directory) == Inner::shards && (last == kShardMetadata || is_shard(last));
}

bool is_of_rank(std::string_view name) {
  const auto [directory, last] = split_name(name);
  return directory.empty() ? !numbers_in_name(kRandomState, last).empty() : is_trainer_file(name, "") && last != kShardMetadata;
}

// The number `global_step` of the outermost object. nullopt: there is none, or the text is not one whole object. Not a parser of JSON,
// since Python writes NaN, which is none.
std::optional<std::int64_t> global_step(std::string_view text) {
  std::optional<std::int64_t> step;
  std::size_t depth = 0, begun = 0;  // where the string that is open begins
  std::string_view last;             // the string that was closed last
  bool in_string = false, ended = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false, last = text.substr(begun, i - begun);
      continue;
    }
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    if (ended || (depth == 0 && c != '{')) return std::nullopt;
    if (c == '"') in_string = true, begun = i + 1;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') ended = --depth == 0;
    if (c != ':' || depth != 1 || last != "global_step") continue;
    const std::size_t digits = text.find_first_not_of(' ', i + 1);
    std::int64_t number = -1;
    if (digits != text.npos) (void)std::from_chars(text.data() + digits, text.data() + text.size(), number);
    if (number >= 0) step = number;
  }
  return ended ? step : std::nullopt;
}

// The names of files in the "weight_map" of an index.
class IndexReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::set<std::string> files;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool string(string_t& value) override {
    if (depth_ == 2 && in_map_) files.insert(std::move(value));
    return files.size() <= kIndexedFiles;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) in_map_ = name == "weight_map";
    return true;
  }
  bool start_object(std::size_t) override { return ++depth_ > 0; }
  bool start_array(std::size_t) override { return ++depth_ > 0; }
  bool end_object() override { return depth_-- > 0; }
  bool end_array() override { return depth_-- > 0; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  std::size_t depth_ = 0;
  bool in_map_ = false;
};

Result<std::string> trainer_table(FileAccess& files, std::string_view) {
  const auto names = files.names();
  if (!names) return fail(names.error());
  std::vector<FileTable> tables;
  std::string counts(kDeepspeedCountBytes, '\0');
  const auto add = [&](const std::string& name) -> Status {
    if (const Status room = room_for_one_more(tables); !room) return room;
    auto file = read_file_table(files, name, kind_of(split_name(name).second));
    if (!file) return fail(file.error());
    tables.push_back(std::move(*file));
    return {};
  };
  for (const std::string& name : *names) {
    if (is_ignored_name(name)) continue;
    const Inner inner = inner_of(name);
    const auto within = inner == Inner::foreign ? fail(ErrorCode::not_found, "") : files.names(name);
    if (inner == Inner::deepspeed && within) {
      auto read = read_deepspeed_files(files, name, tables);
      if (!read) return read;
      counts = std::move(*read);
    } else if (within) {
      for (const std::string& last : *within)
        if (last == kShardMetadata || is_shard(last))
          if (const Status added = add(name + "/" + last); !added) return fail(added.error());
    } else if (const Status added = add(name); !added) {
      return fail(added.error());
    }
  }
  return counts + join_tables(tables);
}

// The names of the directories within, of which there are files.
std::set<std::string> inner_directories(const std::vector<FileTable>& tables) {
  std::set<std::string> directories;
  for (const FileTable& file : tables)
    if (const auto directory = split_name(file.name).first; !directory.empty()) directories.emplace(directory);
  return directories;
}

// The step, if all is there that one process writes.
Result<std::int64_t> check_trainer(const std::vector<FileTable>& tables) {
  const auto find_file = [&](std::string_view name) { return std::ranges::find(tables, name, &FileTable::name); };
  const auto state = find_file(kTrainerState);
  if (state == tables.end()) return bad_trainer("it is not there");
  const auto step = global_step(state->table);
  if (!step) return bad_trainer("it is cut, or has no global_step");
  bool model = std::ranges::any_of(tables, [](const FileTable& file) {
    const auto directory = split_name(file.name).first;
    return inner_of(directory) == Inner::deepspeed || directory.starts_with(kShardedModel);
  });
  for (const std::string_view name : kWholeModels) model = model || find_file(name) != tables.end();
  for (const FileTable& file : tables) {
    if (file.size == 0 && kind_of(split_name(file.name).second) != FileTable::Kind::plain) return bad_trainer(file.name + " is empty");
    if (!file.name.ends_with(kModelIndexEnding)) continue;
    IndexReader index;
    const bool read = nlohmann::json::sax_parse(file.table, &index);
    if (!read || index.files.empty()) return bad_trainer(file.name + " names no files");
    for (const std::string& name : index.files)
      if (find_file(name) == tables.end()) return bad_trainer(name + " is missing, which " + file.name + " names");
    model = true;
  }
  if (!model) return bad_trainer("no model is beside it");
  return *step;
}

Result<std::unique_ptr<Contents>> parse_trainer(std::string_view table, std::string_view) {
  const auto tables = split_tables(table.substr(std::min(table.size(), kDeepspeedCountBytes)));
  if (!tables) return fail(tables.error());
  const auto step = check_trainer(*tables);
  if (!step) return fail(step.error());
  for (const std::string& directory : inner_directories(*tables)) {
    const Status all = inner_of(directory) == Inner::deepspeed ? check_deepspeed_files(table.substr(0, kDeepspeedCountBytes), *tables)
                                                               : check_shards(*tables, directory + "/");
    if (!all && all.error().code == ErrorCode::not_found) return lacks_ranks(all.error().message);
    if (!all) return fail(all.error());
  }
  auto contents = several_files(*tables, kTrainerState);
  if (contents) (*contents)->step = *step;
  return contents;
}

// Counts of DeepSpeed and the name of its directory, and the shards that there must be, one a line.
Result<std::string> list_of_trainer(FileAccess& files, const std::vector<FileTable>& tables) {
  std::string counts(kDeepspeedCountBytes, '\0'), deepspeed, shards;
  const auto directories = inner_directories(tables);
  if (directories.empty()) return fail(ErrorCode::not_found, "no directory with files of all ranks is there");
  if (!check_trainer(tables)) return "";
  for (const std::string& directory : directories) {
    if (inner_of(directory) == Inner::shards) {
      const auto named = named_shards(tables, directory + "/");
      if (!named) return "";
      shards += lines_of(*named);
      continue;
    }
    deepspeed = directory + "/";
    std::string first;
    for (const std::string_view name : {kDeepspeedModel, kDeepspeedShare})
      if (first.empty() && std::ranges::find(tables, deepspeed + std::string(name), &FileTable::name) != tables.end())
        first = deepspeed + std::string(name);
    if (first.empty()) return "";
    auto said = read_deepspeed_counts(files, first);
    if (!said) return said;
    counts = std::move(*said);
  }
  return counts + deepspeed + "\n" + shards;
}

std::string lacks_of_trainer(std::string_view list, const std::vector<std::string>& names) {
  const std::string_view counts = list.substr(0, kDeepspeedCountBytes);
  list.remove_prefix(counts.size());
  const std::string_view deepspeed = list.substr(0, list.find('\n'));
  list.remove_prefix(std::min(list.size(), deepspeed.size() + 1));
  std::vector<FileTable> tables;
  for (const std::string& name : names)
    if (!deepspeed.empty() && name.starts_with(deepspeed)) tables.push_back({name, 0, FileTable::Kind::zips, ""});
  if (!deepspeed.empty())
    if (const Status all = check_deepspeed_files(counts, tables); !all) return all.error().message;
  return lacks_of_lines(list, names);
}

// The Trainer begins with the directory, and goes on from the newest that is there by its name, whole or not. Where each host has a disk of
// its own, those of the other hosts have nothing but their ranks' files: there nothing was broken off.
bool is_broken_off(FileAccess& files, std::string_view base, bool usual) {
  const auto names = files.names();
  if (!is_numbered(base, kDirectory) || !names) return false;
  if (std::ranges::find(*names, kArguments) != names->end()) return true;
  const auto of_first_rank = [&](const std::string& name) {
    if (inner_of(name) == Inner::foreign) return !is_of_rank(name);
    const auto within = files.names(name).value_or(std::vector<std::string>{});
    return std::ranges::any_of(within, [](std::string_view last) {
      return last == kShardMetadata || last.starts_with(kFirstShard) || last.find(kDeepspeedModel) != last.npos ||
             last.find(kFirstOfDeepspeed) != last.npos;
    });
  };
  return usual && (names->empty() || std::ranges::any_of(*names, of_first_rank));
}

}  // namespace

extern const Format kHuggingfaceFormat{
    .name = "huggingface",
    .seen_as = "a directory checkpoint-STEP of Hugging Face's Trainer",
    .named_as = "a directory with trainer_state.json",
    .directory = true,
    .contents_name = [](std::string_view) { return std::string(kTrainerState); },
    .contents_bytes = kGatheredBytes,
    .parse = parse_trainer,
    .is_file_of = is_trainer_file,
    .table = trainer_table,
    .is_file_of_rank = is_of_rank,
    .is_text = [](std::string_view name) { return is_trainer_text(split_name(name).second); },
    .list_of_all = list_of_trainer,
    .lacks = lacks_of_trainer,
    .broken_off = is_broken_off,
    .named_clearly = [](std::string_view base) { return step_said_by(base).has_value(); },
    .step_of = step_of_name,
};

}  // namespace dtrain::transfer
