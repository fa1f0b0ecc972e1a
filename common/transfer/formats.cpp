// The table of formats, one line each, in the order of their stored numbers: a new one comes last.
#include <array>

#include "common/transfer/format.h"

namespace dtrain::transfer {

extern const Format kManifestFormat, kTensorflowFormat;

namespace {

constexpr std::array kFormats{
    &kManifestFormat,
    &kTensorflowFormat,
};

}  // namespace

std::span<const Format* const> formats() { return kFormats; }

const Format& format_of(FormatId id) { return *kFormats.at(static_cast<std::size_t>(id)); }

FormatId enum_last(FormatId) { return FormatId{kFormats.size() - 1}; }

}  // namespace dtrain::transfer
