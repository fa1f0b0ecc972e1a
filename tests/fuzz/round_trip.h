// What every fuzzer of a decoder checks: an input is refused, or what it decodes to is a value that encodes, decodes
// to the same, and encodes the same again.
#pragma once

#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/wire/codec.h"

namespace dtrain::test {

template <class T>
void check_round_trip(std::string_view input) {
  const auto decoded = wire::decode<T>(input);
  if (!decoded) {
    CHECK(!decoded.error().message.empty());
    return;
  }
  const std::string encoded = wire::encode(*decoded);
  const auto again = wire::decode<T>(encoded);
  CHECK(again.has_value());
  CHECK(wire::encode(*again) == encoded);
}

}  // namespace dtrain::test
