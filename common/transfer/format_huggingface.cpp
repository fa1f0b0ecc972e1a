// Directories of Hugging Face's Trainer: checkpoint-STEP, with a model in one or several files and trainer_state.json, which is written
// last. With DeepSpeed its states are in a directory global_stepN within that.
#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "common/transfer/deepspeed_states.h"
#include "common/transfer/file_tables.h"
#include "common/transfer/manifest.h"
#include "common/transfer/selection.h"
#include "common/transfer/step_name.h"

namespace dtrain::transfer {
namespace {

constexpr std::string_view kTrainerState = "trainer_state.json", kModelIndexEnding = ".index.json", kTensorsEnding = ".safetensors";
constexpr std::array<std::string_view, 4> kSavedEndings{".bin", ".pt", ".pth", ".ckpt"};
constexpr std::array<std::string_view, 4> kWholeModels{"model.safetensors", "pytorch_model.bin", "adapter_model.safetensors",
                                                       "adapter_model.bin"};
constexpr std::string_view kDeepspeedDirectory = "global_step";
constexpr std::size_t kIndexedFiles = 10'000;

tl::unexpected<Error> bad_trainer(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

FileTable::Kind kind_of(std::string_view name) {
  if (name == kTrainerState || name.ends_with(kModelIndexEnding)) return FileTable::Kind::text;
  if (name.ends_with(kTensorsEnding)) return FileTable::Kind::safetensors;
  const bool saved = std::ranges::any_of(kSavedEndings, [&](std::string_view ending) { return name.ends_with(ending); });
  return saved ? FileTable::Kind::zips : FileTable::Kind::plain;
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
  for (const std::string& name : *names) {
    if (is_ignored_name(name)) continue;
    if (name.starts_with(kDeepspeedDirectory) && files.names(name)) {
      auto read = read_deepspeed_files(files, name, tables);
      if (!read) return read;
      counts = std::move(*read);
      continue;
    }
    if (tables.size() == kGatheredFiles) return bad_trainer("it has more than " + std::to_string(kGatheredFiles) + " files");
    auto file = read_file_table(files, name, kind_of(name));
    if (!file) return fail(file.error());
    tables.push_back(std::move(*file));
  }
  return counts + join_tables(tables);
}

Result<std::unique_ptr<Contents>> parse_trainer(std::string_view table, std::string_view) {
  const auto tables = split_tables(table.substr(std::min(table.size(), kDeepspeedCountBytes)));
  if (!tables) return fail(tables.error());
  const auto find_file = [&](std::string_view name) { return std::ranges::find(*tables, name, &FileTable::name); };
  const auto state = find_file(kTrainerState);
  if (state == tables->end()) return bad_trainer("it is not there");
  const auto step = global_step(state->table);
  if (!step) return bad_trainer("it is cut, or has no global_step");
  const bool deepspeed = std::ranges::any_of(*tables, [](const FileTable& f) { return f.name.starts_with(kDeepspeedDirectory); });
  if (deepspeed)
    if (auto all = check_deepspeed_files(table.substr(0, kDeepspeedCountBytes), *tables); !all) return fail(all.error());
  bool model = deepspeed || std::ranges::any_of(kWholeModels, [&](std::string_view name) { return find_file(name) != tables->end(); });
  for (const FileTable& file : *tables) {
    if (file.size == 0 && kind_of(file.name) != FileTable::Kind::plain) return bad_trainer(file.name + " is empty");
    if (!file.name.ends_with(kModelIndexEnding)) continue;
    IndexReader index;
    const bool read = nlohmann::json::sax_parse(file.table, &index);
    if (!read || index.files.empty()) return bad_trainer(file.name + " names no files");
    for (const std::string& name : index.files)
      if (find_file(name) == tables->end()) return bad_trainer(name + " is missing, which " + file.name + " names");
    model = true;
  }
  if (!model) return bad_trainer("no model is beside it");
  auto contents = several_files(*tables, kTrainerState);
  if (contents) (*contents)->step = *step;
  return contents;
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
    .is_file_of =
        [](std::string_view name, std::string_view) {
          const auto slash = name.find('/');
          return is_inner_name(name) &&
                 (slash == name.npos || (name.starts_with(kDeepspeedDirectory) && is_deepspeed_file(name.substr(slash + 1))));
        },
    .table = trainer_table,
    .named_clearly = [](std::string_view base) { return step_said_by(base).has_value(); },
    .step_of = step_of_name,
};

}  // namespace dtrain::transfer
