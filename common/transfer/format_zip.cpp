// Checkpoints that are one zip file: of torch.save, numpy.savez and Keras. What their members mean is not looked at: no pickle is ever run.
#include <array>

#include "common/transfer/single_file.h"
#include "common/transfer/zip_check.h"

namespace dtrain::transfer {
namespace {

constexpr std::array<std::string_view, 4> kTorchEndings{".pt", ".pth", ".ckpt", ".bin"};
constexpr std::array<std::string_view, 1> kNumpyEndings{".npz"};
constexpr std::array<std::string_view, 1> kKerasEndings{".keras"};

Result<std::string> zip_table(FileAccess& files, std::string_view base) {
  const std::string name(base);
  const auto size = files.size(name);
  if (!size) return fail(size.error());
  auto table = read_zip_table(files, name, *size);
  if (table && zip_place(*table).begin != 0) return fail(ErrorCode::damaged, "other bytes stand before the zip in it");
  return table;
}

// Jobs of other frameworks also write files of NumPy and Keras beside their checkpoints: with format: auto these stay what they are.
template <const auto& kEndings>
Result<std::unique_ptr<Contents>> parse_zip(std::string_view table, std::string_view base) {
  auto contents = zip_contents(table, std::string(base));
  if (contents) (*contents)->step = step_of_name(SingleFile<kEndings>::stem(base));
  return contents;
}

template <const auto& kEndings>
constexpr Format zip_format(std::string_view name, std::string_view seen_as, std::string_view named_as, bool by_auto,
                            bool (*may_be)(std::string_view)) {
  Format f = SingleFile<kEndings>::format(name, seen_as, named_as, kZipDirectoryBytes);
  f.parse = parse_zip<kEndings>;
  f.table = zip_table;
  f.may_be = may_be;
  f.by_auto = by_auto;
  return f;
}

constexpr bool has_member(std::string_view table, std::string_view part_of_name) { return table.find(part_of_name) != table.npos; }

}  // namespace

extern const Format kTorchFormat = zip_format<kTorchEndings>("torch", "a file of torch.save whose name says a step, such as ckpt_1200.pt",
                                                             "a file of torch.save (.pt, .pth, .ckpt, .bin)", true,
                                                             [](std::string_view table) { return has_member(table, "/data.pkl"); });
extern const Format kNumpyFormat =
    zip_format<kNumpyEndings>("numpy", "a file of numpy.savez, only if the job file names the format", "a file of numpy.savez (.npz)",
                              false, [](std::string_view table) { return has_member(table, ".npy"); });
extern const Format kKerasFormat =
    zip_format<kKerasEndings>("keras", "a file of Keras, only if the job file names the format", "a file of Keras (.keras)", false,
                              [](std::string_view table) { return has_member(table, "config.json"); });

}  // namespace dtrain::transfer
