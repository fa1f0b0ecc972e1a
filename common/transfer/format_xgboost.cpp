// Models of XGBoost in one file: JSON or UBJSON, which are walked through to their end. Neither has a checksum. The binary format before
// those has not even a size: it is left alone.
#include <array>

#include "common/transfer/single_file.h"
#include "common/transfer/text_walk.h"
#include "common/transfer/unproved_bytes.h"
#include "common/transfer/zip_directory.h"

namespace dtrain::transfer {
namespace {

constexpr std::array<std::string_view, 4> kXgboostEndings{".json", ".ubj", ".xgb", ".model"};
constexpr std::array<std::string_view, 3> kBinaryMarks{"binf", "bs64", "CONFIG-offset:"};
constexpr std::string_view kLearner = "learner";  // the first key of every model, and of nothing else that is called like this
constexpr std::uint64_t kXgboostHeadBytes = 256;
constexpr std::uint64_t kXgboostLeastBytes = 24;  // with fewer nothing says what it is
constexpr std::size_t kXgboostNumberBytes = 8;
constexpr std::uint64_t kWalkCost = 4;

tl::unexpected<Error> bad_model(std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); }

template <class Walk>
class WalkCheck : public PartCheck {
 public:
  void feed(std::string_view bytes) override { (void)walk_.feed(bytes); }
  bool finish() override { return walk_.ended(); }

 private:
  Walk walk_;
};

// After the first brace of UBJSON comes the marker of a key's length.
bool is_ubjson(std::string_view head) { return head.size() > 1 && std::string_view("iUIlL$#").find(head[1]) != std::string_view::npos; }

class ModelContents : public UnprovedBytes {
 public:
  ModelContents(std::string name, std::uint64_t size, bool ubjson) : UnprovedBytes(std::move(name), 0, size), ubjson_(ubjson) {}
  Part part(std::size_t i) const override {
    Part all = UnprovedBytes::part(i);
    all.cost = kWalkCost;
    return all;
  }
  std::unique_ptr<PartCheck> check(std::size_t) const override {
    if (ubjson_) return std::make_unique<WalkCheck<UbjsonWalk>>();
    return std::make_unique<WalkCheck<JsonWalk>>();
  }
  std::string damage(std::size_t) const override { return std::string(": it is not one whole value of ") + (ubjson_ ? "UBJSON" : "JSON"); }

 private:
  const bool ubjson_;
};

Result<std::string> model_table(FileAccess& files, std::string_view base) {
  const std::string name(base);
  const auto size = files.size(name);
  if (!size) return fail(size.error());
  const auto head = files.read(name, 0, std::min(*size, kXgboostHeadBytes));
  if (!head) return head;
  for (const std::string_view mark : kBinaryMarks)
    if (head->starts_with(mark))
      return fail(ErrorCode::refused, "it is a binary model, in which nothing can be verified: save it as .json or .ubj");
  if (!head->empty() && !head->starts_with('{')) return fail(ErrorCode::refused, "it is neither JSON nor UBJSON");
  const auto samples = read_samples(files, name, 0, *size);
  if (!samples) return samples;
  return to_little_endian(*size, kXgboostNumberBytes) + *head + *samples;
}

Result<std::unique_ptr<Contents>> parse_model(std::string_view table, std::string_view base) {
  if (table.size() < kXgboostNumberBytes) return bad_model("it is cut");
  const std::uint64_t size = from_little_endian(table.substr(0, kXgboostNumberBytes));
  const std::string_view head = table.substr(kXgboostNumberBytes, std::min(size, kXgboostHeadBytes));
  if (!head.starts_with('{')) return bad_model("it is cut, or not finished yet");
  if (size < kXgboostLeastBytes) return bad_model("it is cut, or not finished yet");
  if (head.find(kLearner) == head.npos) return fail(ErrorCode::refused, "it is no model of XGBoost");
  const auto last = table.find_last_not_of(" \r\n\t");
  if (table[last] != '}') return bad_model("it is cut, or not finished yet");
  auto contents = std::make_unique<ModelContents>(std::string(base), size, is_ubjson(head));
  contents->step = step_of_name(SingleFile<kXgboostEndings>::stem(base));
  return contents;
}

constexpr Format xgboost_format() {
  Format f = SingleFile<kXgboostEndings>::format("xgboost", "a model of XGBoost, only if the job file names the format",
                                                 "a model of XGBoost (.json, .ubj)", kXgboostHeadBytes + kSamples * kSampleBytes);
  f.parse = parse_model;
  f.table = model_table;
  f.by_auto = false;
  f.may_be = [](std::string_view table) {
    return table.find(kLearner) != table.npos || table.size() < kXgboostNumberBytes + 2 * kXgboostLeastBytes;
  };
  return f;
}

}  // namespace

extern const Format kXgboostFormat = xgboost_format();

}  // namespace dtrain::transfer
