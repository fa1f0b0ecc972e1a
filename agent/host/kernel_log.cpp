#include "agent/host/kernel_log.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "agent/host/pci_address.h"

namespace dtrain::host {
namespace {

constexpr std::string_view kXid = "NVRM: Xid (";
constexpr unsigned kFacilityBits = 3;  // above the level; facility 0 is the kernel's own

// Takes a number off the front.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// The driver leaves the function out; it is 0.
std::string pci_of(std::string_view text) {
  if (text.starts_with("PCI:")) text.remove_prefix(4);
  const auto address = parse_pci_address(std::string(text) + ".0");
  return address ? address->text() : "";
}

// Without the process that ran on it: "pid=1896, name=python3, ".
std::string words_of(std::string_view text) {
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(", "), text.size()));
    if (!text.starts_with("pid=") && !text.starts_with("name=")) break;
    text.remove_prefix(std::min(text.find(','), text.size()));
  }
  std::string words(text.substr(0, kFaultTextBytes));
  std::ranges::replace_if(
      words, [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  while (!words.empty() && (words.back() == '.' || words.back() == ' ')) words.pop_back();
  return words;
}

}  // namespace

std::optional<node::GpuFault> parse_gpu_fault(std::string_view record) {
  const auto priority = take_number(record);
  if (!priority || *priority >> kFacilityBits != 0) return std::nullopt;  // programs may write anything
  record.remove_prefix(std::min(record.find(';'), record.size()));
  record = record.substr(0, record.find('\n'));  // further lines name the device
  // Only at the beginning: elsewhere it may be text that a user made the kernel repeat, such as a mount's options.
  if (!record.empty()) record.remove_prefix(1);
  if (record.starts_with('[')) {  // the time
    const auto behind = record.find("] ");
    if (behind == std::string_view::npos) return std::nullopt;
    record.remove_prefix(behind + 2);
  }
  if (!record.starts_with(kXid)) return std::nullopt;
  record.remove_prefix(kXid.size());
  const auto end = record.find("): ");
  if (end == std::string_view::npos) return std::nullopt;
  node::GpuFault fault;
  fault.pci = pci_of(record.substr(0, end));
  record.remove_prefix(end + 3);
  const auto xid = take_number(record);
  if (!xid) return std::nullopt;
  fault.xid = *xid;
  fault.text = words_of(record);
  return fault;
}

}  // namespace dtrain::host
