// The address of a PCI device, by which hwloc, drivers and operators name a GPU. Ordered as the kernel lists
// them.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain::host {

struct PciAddress {
  std::uint32_t domain = 0;  // 16 bits almost everywhere, 32 behind some bridges
  std::uint8_t bus = 0;
  std::uint8_t device = 0;    // below 32
  std::uint8_t function = 0;  // below 8
  auto operator<=>(const PciAddress&) const = default;
  std::string text() const;  // "0000:10:00.0", as sysfs writes it
};

// "0000:10:00.0", "10:00.0" (domain 0), NVML's "00000000:10:00.0"; upper case too. Unset: anything else.
std::optional<PciAddress> parse_pci_address(std::string_view text);

}  // namespace dtrain::host
