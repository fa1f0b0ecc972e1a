#include "agent/host/pci_address.h"

#include <charconv>
#include <cstdio>

namespace dtrain::host {
namespace {

// Removes the hexadecimal number of 1 to `digits` digits before `end` (0: the end of the text) from the text.
std::optional<std::uint32_t> take(std::string_view& text, char end, std::size_t digits) {
  const std::size_t length = end == 0 ? text.size() : text.find(end);
  if (length == std::string_view::npos || length == 0 || length > digits) return std::nullopt;
  std::uint32_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + length, value, 16);
  if (error != std::errc() || stop != text.data() + length) return std::nullopt;
  text.remove_prefix(end == 0 ? length : length + 1);
  return value;
}

}  // namespace

std::string PciAddress::text() const {
  char out[24];
  std::snprintf(out, sizeof out, "%04x:%02x:%02x.%x", domain, bus, device, function);
  return out;
}

std::optional<PciAddress> parse_pci_address(std::string_view text) {
  PciAddress out;
  if (text.find(':') != text.rfind(':')) {
    const auto domain = take(text, ':', 8);
    if (!domain) return std::nullopt;
    out.domain = *domain;
  }
  const auto bus = take(text, ':', 2), device = bus ? take(text, '.', 2) : std::nullopt;
  const auto function = device ? take(text, 0, 1) : std::nullopt;
  if (!function || *device > 31 || *function > 7) return std::nullopt;
  out.bus = static_cast<std::uint8_t>(*bus);
  out.device = static_cast<std::uint8_t>(*device);
  out.function = static_cast<std::uint8_t>(*function);
  return out;
}

}  // namespace dtrain::host
