// One safetensors file. Several with an index are in a directory: format_huggingface.cpp.
#include <array>

#include "common/transfer/safetensors.h"
#include "common/transfer/single_file.h"

namespace dtrain::transfer {
namespace {

constexpr std::array<std::string_view, 1> kSafetensorsEndings{".safetensors"};

constexpr Format safetensors_format() {
  Format f = SingleFile<kSafetensorsEndings>::format("safetensors", "a .safetensors file whose name says a step", "a .safetensors file",
                                                     kSafetensorsTableBytes);
  f.table = [](FileAccess& files, std::string_view base) { return read_safetensors_table(files, std::string(base)); };
  f.parse = [](std::string_view table, std::string_view base) -> Result<std::unique_ptr<Contents>> {
    auto contents = safetensors_contents(table, std::string(base));
    if (contents) (*contents)->step = step_of_name(SingleFile<kSafetensorsEndings>::stem(base));
    return contents;
  };
  return f;
}

}  // namespace

extern const Format kSafetensorsFormat = safetensors_format();

}  // namespace dtrain::transfer
