#include "agent/dtrain-discover/health.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "agent/dtrain-discover/gpu.h"
#include "agent/dtrain-discover/nvml.h"
#include "agent/dtrain-discover/nvml_library.h"
#include "agent/dtrain-discover/small_file.h"

namespace dtrain::discover {
namespace {

using node::GpuSample;

std::optional<std::int32_t> degrees(const std::string& path) {
  const auto thousandths = read_number(path);
  if (!thousandths || *thousandths > 1'000'000) return std::nullopt;
  return static_cast<std::int32_t>(*thousandths / 1000);
}

// The sensor that is nearest to its limit.
void read_sensors(const std::string& device, GpuSample& sample) {
  for (const std::string& name : list_directory(device + "/hwmon").value_or(std::vector<std::string>())) {
    const std::string directory = device + "/hwmon/" + name + "/";
    for (const std::string& file : list_directory(directory).value_or(std::vector<std::string>())) {
      if (!file.starts_with("temp") || !file.ends_with("_crit")) continue;
      const auto limit = degrees(directory + file);
      const auto now = degrees(directory + file.substr(0, file.size() - 4) + "input");
      if (!limit || !now || *limit <= 0) continue;
      if (sample.celsius && *sample.slowdown - *sample.celsius <= *limit - *now) continue;
      sample.celsius = now;
      sample.slowdown = limit;
    }
  }
}

GpuSample look_at(const std::string& root, const host::KnownGpu& gpu) {
  GpuSample sample;
  sample.pci = gpu.pci;
  const std::string device = root + "/sys/bus/pci/devices/" + gpu.pci;
  if (::access(device.c_str(), F_OK) != 0) {
    sample.lost = kNotOnTheBus;
    return sample;
  }
  // A device that no longer answers reads as all ones.
  if (const auto config = read_small_file(device + "/config"); config && config->starts_with("\xff\xff\xff\xff")) {
    sample.lost = "it does not answer on the bus";
    return sample;
  }
  read_sensors(device, sample);
  // "ue: 0" and "ce: 0": errors that were not corrected, and that were.
  const auto counts = read_keys(device + "/ras/umc_err_count", ':');
  if (const auto found = counts.find("ue"); found != counts.end()) sample.uncorrected = to_number(found->second);
  return sample;
}

bool is_nvidia(const std::string& root, const GpuSample& sample) {
  return sample.lost.empty() && read_small_file(root + "/sys/bus/pci/devices/" + sample.pci + "/vendor").value_or("") == "0x10de";
}

void ask_gpu(const nvml::Library& nvml, nvml::Handle handle, GpuSample& sample) {
  unsigned celsius = 0, limit = 0, pending = 0, failed = 0, corrected = 0, uncorrected = 0;
  unsigned long long errors = 0;
  const auto lost = [&](nvml::Code code) {
    if (code == nvml::kGpuIsLost) sample.lost = "NVML: " + nvml.text(code);
    return code != nvml::kSuccess;
  };
  if (nvml.temperature != nullptr && !lost(nvml.temperature(handle, nvml::kTemperatureOfGpu, &celsius)))
    sample.celsius = static_cast<std::int32_t>(std::min(celsius, 1000u));
  if (nvml.temperature_limit != nullptr && !lost(nvml.temperature_limit(handle, nvml::kSlowdown, &limit)) && limit > 0)
    sample.slowdown = static_cast<std::int32_t>(std::min(limit, 1000u));
  if (nvml.ecc_errors != nullptr && !lost(nvml.ecc_errors(handle, nvml::kUncorrected, nvml::kSinceDriverLoad, &errors)))
    sample.uncorrected = errors;
  if (nvml.remapped_rows == nullptr || lost(nvml.remapped_rows(handle, &corrected, &uncorrected, &pending, &failed))) return;
  sample.remap_pending = pending != 0;
  sample.remap_failed = failed != 0;
}

// Only a GPU that NVML itself calls lost is lost: its other errors may pass, such as a lack of memory or a driver
// that is being reloaded.
void ask_all(const nvml::Library& nvml, std::vector<GpuSample*> wanted) {
  nvml::Code code = nvml.init();
  unsigned count = 0;
  if (code == nvml::kSuccess) code = nvml.count(&count);
  if (code != nvml::kSuccess) {
    for (GpuSample* sample : wanted) sample->refused = "NVML: " + nvml.text(code);
    return;
  }
  // GPUs without a known address: their number, how many are lost, and why the last one did not answer.
  std::size_t unnamed = 0, lost = 0;
  std::string why;
  for (unsigned index = 0; index < std::min<unsigned>(count, host::kMostGpus); ++index) {
    nvml::Handle handle = nullptr;
    nvml::PciInfo pci{};
    if ((code = nvml.device(index, &handle)) != nvml::kSuccess || (code = nvml.pci_info(handle, &pci)) != nvml::kSuccess) {
      why = ": " + nvml.text(code);
      ++unnamed;
      if (code == nvml::kGpuIsLost) ++lost;
      continue;
    }
    const auto sample = std::find_if(wanted.begin(), wanted.end(), [&](const GpuSample* s) { return s->pci == pci.pci().text(); });
    if (sample == wanted.end()) continue;
    (*sample)->refused = "";
    ask_gpu(nvml, handle, **sample);
    wanted.erase(sample);
  }
  const bool all_lost = lost == unnamed && lost >= wanted.size();
  for (GpuSample* sample : wanted) {
    if (all_lost) sample->lost = kNvmlHasLostIt + why;
    else sample->refused = "NVML does not name it" + why;
  }
}

}  // namespace

void look_at_health(const std::string& root, const std::vector<host::KnownGpu>& gpus, const std::string& nvml,
                    const std::function<void(const host::GpuSamples&)>& answer) {
  host::GpuSamples samples;
  for (const host::KnownGpu& gpu : gpus) samples.gpus.push_back(look_at(root, gpu));
  std::vector<GpuSample*> nvidia;
  for (GpuSample& sample : samples.gpus)
    if (is_nvidia(root, sample)) nvidia.push_back(&sample);
  const bool ask = !nvidia.empty() && (!nvml.empty() || root.empty());  // the system's library knows only this machine
  samples.complete = !ask;
  answer(samples);
  if (!ask) return;
  const nvml::Library library(nvml.empty() ? kNvmlLibrary : nvml);
  if (library.loaded() && library.missing().empty()) ask_all(library, nvidia);
  samples.complete = true;
  answer(samples);
}

}  // namespace dtrain::discover
