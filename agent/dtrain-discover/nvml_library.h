// NVIDIA's management library: the functions of it that are used, found by name at run time ("NVML API Reference Guide":
// Initialization, Device Queries, NvLink Methods; struct layouts are those of its documented interface).
#pragma once

#include <optional>
#include <string>

#include "agent/host/pci_address.h"

namespace dtrain::discover::nvml {

using Handle = void*;
using Code = int;
inline constexpr Code kSuccess = 0, kGpuIsLost = 15;

struct PciInfo {  // nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3
  char legacy_address[16];
  unsigned domain, bus, device;
  unsigned device_and_vendor;  // the vendor in the low half
  unsigned subsystem;
  char address[32];
  host::PciAddress pci() const { return {domain, static_cast<std::uint8_t>(bus), static_cast<std::uint8_t>(device), 0}; }
};
struct Memory {  // nvmlMemory_t, bytes
  unsigned long long total, free, used;
};

inline constexpr unsigned kTemperatureOfGpu = 0;              // nvmlTemperatureSensors_t
inline constexpr unsigned kSlowdown = 1;                      // nvmlTemperatureThresholds_t
inline constexpr unsigned kUncorrected = 1;                   // nvmlMemoryErrorType_t
inline constexpr unsigned kSinceDriverLoad = 0;               // nvmlEccCounterType_t: volatile
inline constexpr unsigned kLinks = 18;                        // NVML_NVLINK_MAX_LINKS
inline constexpr unsigned kRemoteGpu = 0, kRemoteSwitch = 2;  // nvmlIntNvLinkDeviceType_t

class Library {
 public:
  explicit Library(const std::string& name);  // never closed, since this program ends soon
  bool loaded() const { return handle_ != nullptr; }
  const std::string& missing() const { return missing_; }  // the first function that every version has and this one lacks
  std::string text(Code code) const;

  Code (*init)() = nullptr;
  const char* (*error_string)(Code) = nullptr;
  Code (*count)(unsigned*) = nullptr;
  Code (*device)(unsigned, Handle*) = nullptr;
  Code (*pci_info)(Handle, PciInfo*) = nullptr;
  Code (*name_of)(Handle, char*, unsigned) = nullptr;
  Code (*uuid_of)(Handle, char*, unsigned) = nullptr;
  Code (*memory_of)(Handle, Memory*) = nullptr;

  // nullptr if the library is older or newer than these functions.
  Code (*mig_mode)(Handle, unsigned* current, unsigned* pending) = nullptr;
  Code (*link_state)(Handle, unsigned link, unsigned* active) = nullptr;
  Code (*link_type)(Handle, unsigned link, unsigned* type) = nullptr;
  Code (*link_remote)(Handle, unsigned link, PciInfo*) = nullptr;
  Code (*temperature)(Handle, unsigned sensor, unsigned* celsius) = nullptr;
  Code (*temperature_limit)(Handle, unsigned threshold, unsigned* celsius) = nullptr;
  Code (*ecc_errors)(Handle, unsigned type, unsigned counter, unsigned long long* count) = nullptr;
  Code (*remapped_rows)(Handle, unsigned* corrected, unsigned* uncorrected, unsigned* pending, unsigned* failed) = nullptr;

 private:
  template <class Function>
  void find(const char* name, Function& function);
  void* handle_;
  std::string missing_;
};

}  // namespace dtrain::discover::nvml
