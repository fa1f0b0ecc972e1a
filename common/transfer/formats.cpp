// The table of formats, one line each, in the order of their stored numbers: a new one comes last.
#include <algorithm>
#include <array>

#include "common/transfer/format.h"

namespace dtrain::transfer {

extern const Format kManifestFormat, kTensorflowFormat, kTorchFormat, kSafetensorsFormat, kHuggingfaceFormat, kTorchDistributedFormat,
    kNumpyFormat, kKerasFormat, kDeepspeedFormat, kMegatronFormat, kOrbaxFormat, kHdf5Format, kXgboostFormat;

namespace {

constexpr std::array kFormats{
    &kManifestFormat, &kTensorflowFormat, &kTorchFormat,     &kSafetensorsFormat, &kHuggingfaceFormat, &kTorchDistributedFormat,
    &kNumpyFormat,    &kKerasFormat,      &kDeepspeedFormat, &kMegatronFormat,    &kOrbaxFormat,       &kHdf5Format,
    &kXgboostFormat,
};

}  // namespace

std::span<const Format* const> formats() { return kFormats; }

const Format& format_of(FormatId id) { return *kFormats.at(static_cast<std::size_t>(id)); }

bool may_be_contents(const Format& format, std::string_view base, std::string_view name) {
  return name == format.contents_name(base) || std::ranges::find(format.other_contents, name) != format.other_contents.end();
}

bool may_be_removed(const CheckpointInfo& info) {
  return format_of(info.format).named_clearly(std::string_view(info.path).substr(info.path.rfind('/') + 1));
}

FormatId enum_last(FormatId) { return FormatId{kFormats.size() - 1}; }

}  // namespace dtrain::transfer
