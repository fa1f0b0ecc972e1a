#include "agent/dtrain-discover/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <optional>

#include "agent/dtrain-discover/small_file.h"
#include "agent/host/machine.h"

namespace dtrain::discover {
namespace {

// The library's own interface, as its reference documents it ("NVML API Reference Guide": Initialization,
// Device Queries).
using Handle = void*;
using Code = int;
constexpr Code kSuccess = 0;
struct PciInfo {  // nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3
  char legacy_address[16];
  unsigned domain, bus, device;
  unsigned device_and_vendor;  // the vendor in the low half
  unsigned subsystem;
  char address[32];
};
struct Memory {  // nvmlMemory_t, bytes
  unsigned long long total, free, used;
};

class Library {
 public:
  explicit Library(const std::string& name) : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) return;
    find("nvmlInit_v2", init);
    find("nvmlErrorString", error_string);
    find("nvmlDeviceGetCount_v2", count);
    find("nvmlDeviceGetHandleByIndex_v2", device);
    find("nvmlDeviceGetPciInfo_v3", pci_info);
    find("nvmlDeviceGetName", name_of);
    find("nvmlDeviceGetUUID", uuid_of);
    find("nvmlDeviceGetMemoryInfo", memory_of);
  }
  bool loaded() const { return handle_ != nullptr; }
  const std::string& missing() const { return missing_; }  // the first function that it does not have
  std::string text(Code code) const {
    const char* words = error_string(code);
    return words == nullptr ? "error " + std::to_string(code) : clean_text(words, host::kDeviceTextBytes);
  }

  Code (*init)() = nullptr;
  const char* (*error_string)(Code) = nullptr;
  Code (*count)(unsigned*) = nullptr;
  Code (*device)(unsigned, Handle*) = nullptr;
  Code (*pci_info)(Handle, PciInfo*) = nullptr;
  Code (*name_of)(Handle, char*, unsigned) = nullptr;
  Code (*uuid_of)(Handle, char*, unsigned) = nullptr;
  Code (*memory_of)(Handle, Memory*) = nullptr;

 private:
  template <class Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  void* handle_;  // never closed: this program ends soon
  std::string missing_;
};

FoundGpu& find_or_add(std::vector<FoundGpu>& gpus, const PciInfo& pci) {
  const host::PciAddress address{pci.domain, static_cast<std::uint8_t>(pci.bus),
                                 static_cast<std::uint8_t>(pci.device), 0};
  const auto found =
      std::find_if(gpus.begin(), gpus.end(), [&](const FoundGpu& gpu) { return gpu.address == address; });
  if (found != gpus.end()) return *found;
  gpus.push_back(make_gpu(address, kNvidia, static_cast<std::uint16_t>(pci.device_and_vendor >> 16)));
  return gpus.back();
}

// Which GPU it was about; unset where not even that can be had.
std::optional<host::PciAddress> ask_device(const Library& nvml, unsigned index, std::vector<FoundGpu>& gpus,
                                           Code& code) {
  Handle handle = nullptr;
  PciInfo pci{};
  if ((code = nvml.device(index, &handle)) != kSuccess) return std::nullopt;
  if ((code = nvml.pci_info(handle, &pci)) != kSuccess) return std::nullopt;
  FoundGpu& gpu = find_or_add(gpus, pci);
  std::array<char, 128> text{};
  Memory memory{};
  if ((code = nvml.name_of(handle, text.data(), text.size() - 1)) == kSuccess)
    gpu.facts.model = clean_text(text.data(), host::kDeviceTextBytes);
  text.fill('\0');
  if (code == kSuccess && (code = nvml.uuid_of(handle, text.data(), text.size() - 1)) == kSuccess)
    gpu.facts.uuid = clean_text(text.data(), host::kDeviceTextBytes);
  if (code == kSuccess && (code = nvml.memory_of(handle, &memory)) == kSuccess)
    gpu.facts.memory_bytes = memory.total;
  if (code != kSuccess) gpu.facts.healthy = false;
  return gpu.address;
}

void mark_all(std::vector<FoundGpu>& gpus, const std::string& cause, std::vector<Error>& warnings) {
  for (FoundGpu& gpu : gpus)
    if (gpu.vendor == kNvidia) gpu.facts.healthy = false;
  warnings.push_back(
      {ErrorCode::unavailable, "could not use the NVIDIA GPUs: NVML: " + cause,
       "see what nvidia-smi says (a new driver needs a restart of the machine), then start the agent again"});
}

}  // namespace

void ask_nvml(const std::string& library, std::vector<FoundGpu>& gpus, std::vector<Error>& warnings) {
  const Library nvml(library);
  if (!nvml.loaded() || !nvml.missing().empty()) {
    const std::string cause =
        nvml.loaded() ? library + " has no " + nvml.missing() : library + " cannot be loaded";
    warnings.push_back({ErrorCode::unavailable, "could not ask for the memory of NVIDIA GPUs: " + cause,
                        "install the driver's libraries, or give their directory in LD_LIBRARY_PATH"});
    return;
  }
  if (const Code code = nvml.init(); code != kSuccess) return mark_all(gpus, nvml.text(code), warnings);
  unsigned count = 0;
  if (const Code code = nvml.count(&count); code != kSuccess)
    return mark_all(gpus, nvml.text(code), warnings);
  std::vector<host::PciAddress> answered;
  for (unsigned index = 0; index < std::min<unsigned>(count, host::kMostGpus); ++index) {
    Code code = kSuccess;
    const auto address = ask_device(nvml, index, gpus, code);
    if (address) answered.push_back(*address);
    if (code != kSuccess)
      warnings.push_back({ErrorCode::unavailable,
                          "could not ask GPU " +
                              (address ? address->text() : "number " + std::to_string(index)) +
                              ": NVML: " + nvml.text(code),
                          "see what nvidia-smi and the kernel's log say about it"});
  }
  for (FoundGpu& gpu : gpus)  // the driver holds it and its library does not: it was lost
    if (gpu.vendor == kNvidia && std::find(answered.begin(), answered.end(), gpu.address) == answered.end())
      gpu.facts.healthy = false;
}

}  // namespace dtrain::discover
