#include "agent/dtrain-discover/nvml.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "agent/dtrain-discover/drivers.h"
#include "agent/dtrain-discover/links.h"
#include "agent/dtrain-discover/nvml_library.h"
#include "agent/dtrain-discover/small_file.h"
#include "agent/host/machine.h"

namespace dtrain::discover {
namespace {

using nvml::Code;
using nvml::Handle;
using nvml::kSuccess;
using nvml::Library;
using nvml::PciInfo;

FoundGpu& find_or_add(std::vector<FoundGpu>& gpus, const PciInfo& pci) {
  const host::PciAddress address = pci.pci();
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const FoundGpu& gpu) { return gpu.address == address; });
  if (found == gpus.end()) {
    gpus.push_back(make_gpu(address, kNvidia, static_cast<std::uint16_t>(pci.device_and_vendor >> 16)));
    return gpus.back();
  }
  if (std::exchange(found->stranger, false)) {  // the driver does not list it there (in some sandboxes), but holds it
    found->facts.healthy = true;
    found->facts.reason.clear();
  }
  return *found;
}

Code read_facts(const Library& nvml, Handle handle, node::Gpu& gpu) {
  std::array<char, 128> text{};
  nvml::Memory memory{};
  Code code = nvml.name_of(handle, text.data(), text.size() - 1);
  if (code != kSuccess) return code;
  gpu.model = clean_text(text.data(), host::kDeviceTextBytes);
  text.fill('\0');
  if ((code = nvml.uuid_of(handle, text.data(), text.size() - 1)) != kSuccess) return code;
  gpu.uuid = clean_text(text.data(), host::kDeviceTextBytes);
  if ((code = nvml.memory_of(handle, &memory)) != kSuccess) return code;
  gpu.memory_bytes = memory.total;
  unsigned mig = 0, pending = 0;
  if (nvml.mig_mode != nullptr && nvml.mig_mode(handle, &mig, &pending) == kSuccess && mig != 0) make_unhealthy(gpu, kMigIsOn);
  return kSuccess;
}

void read_links(const Library& nvml, Handle handle, FoundGpu& gpu) {
  if (nvml.link_state == nullptr || nvml.link_type == nullptr || nvml.link_remote == nullptr) return;
  for (unsigned link = 0; link < nvml::kLinks; ++link) {
    unsigned active = 0, type = 0;
    PciInfo remote{};
    if (nvml.link_state(handle, link, &active) != kSuccess || active == 0 || nvml.link_type(handle, link, &type) != kSuccess) continue;
    if (type == nvml::kRemoteSwitch) gpu.linked.push_back(kAnySwitch);
    else if (type == nvml::kRemoteGpu && nvml.link_remote(handle, link, &remote) == kSuccess) gpu.linked.push_back(remote.pci());
  }
}

// The GPU in question; unset if even that is not known.
std::optional<host::PciAddress> ask_device(const Library& nvml, unsigned index, std::vector<FoundGpu>& gpus, Code& code) {
  Handle handle = nullptr;
  PciInfo pci{};
  if ((code = nvml.device(index, &handle)) != kSuccess) return std::nullopt;
  if ((code = nvml.pci_info(handle, &pci)) != kSuccess) return std::nullopt;
  FoundGpu& gpu = find_or_add(gpus, pci);
  gpu.facts.ordinal = static_cast<std::int32_t>(index);  // NVML counts in the order of PCI addresses
  if ((code = read_facts(nvml, handle, gpu.facts)) != kSuccess) make_unhealthy(gpu.facts, "NVML: " + nvml.text(code));
  read_links(nvml, handle, gpu);
  return gpu.address;
}

void mark_all(std::vector<FoundGpu>& gpus, const std::string& cause, std::vector<Error>& warnings) {
  for (FoundGpu& gpu : gpus)
    if (gpu.vendor == kNvidia) make_unhealthy(gpu.facts, "NVML: " + cause);
  warnings.push_back({ErrorCode::unavailable, "could not use the NVIDIA GPUs: NVML: " + cause,
                      "see what nvidia-smi says (a new driver needs a restart of the machine), then start the agent again"});
}

}  // namespace

void ask_nvml(const std::string& library, std::vector<FoundGpu>& gpus, std::vector<Error>& warnings) {
  const Library nvml(library);
  if (!nvml.loaded() || !nvml.missing().empty()) {
    const std::string cause = nvml.loaded() ? library + " has no " + nvml.missing() : library + " cannot be loaded";
    warnings.push_back({ErrorCode::unavailable, "could not ask for the memory of NVIDIA GPUs: " + cause,
                        "install the driver's libraries, or give their directory in LD_LIBRARY_PATH"});
    return;
  }
  if (const Code code = nvml.init(); code != kSuccess) return mark_all(gpus, nvml.text(code), warnings);
  unsigned count = 0;
  if (const Code code = nvml.count(&count); code != kSuccess) return mark_all(gpus, nvml.text(code), warnings);
  std::vector<host::PciAddress> answered;
  std::string unnamed;  // why a GPU without a known address did not answer
  for (unsigned index = 0; index < std::min<unsigned>(count, host::kMostGpus); ++index) {
    Code code = kSuccess;
    const auto address = ask_device(nvml, index, gpus, code);
    if (address) answered.push_back(*address);
    if (code == kSuccess) continue;
    if (!address) unnamed = ": " + nvml.text(code);
    warnings.push_back(
        {ErrorCode::unavailable,
         "could not ask GPU " + (address ? address->text() : "number " + std::to_string(index)) + ": NVML: " + nvml.text(code),
         "see what nvidia-smi and the kernel's log say about it"});
  }
  for (FoundGpu& gpu : gpus)
    if (gpu.vendor == kNvidia && std::find(answered.begin(), answered.end(), gpu.address) == answered.end())
      make_unhealthy(gpu.facts, kNvmlHasLostIt + unnamed);
}

}  // namespace dtrain::discover
