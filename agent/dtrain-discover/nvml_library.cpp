#include "agent/dtrain-discover/nvml_library.h"

#include <dlfcn.h>

#include "agent/dtrain-discover/small_file.h"
#include "agent/host/machine.h"

namespace dtrain::discover::nvml {

template <class Function>
void Library::find(const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle_, name));
}

Library::Library(const std::string& name) : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) return;
  const auto need = [this](const char* function_name, auto& function) {
    find(function_name, function);
    if (function == nullptr && missing_.empty()) missing_ = function_name;
  };
  need("nvmlInit_v2", init);
  need("nvmlErrorString", error_string);
  need("nvmlDeviceGetCount_v2", count);
  need("nvmlDeviceGetHandleByIndex_v2", device);
  need("nvmlDeviceGetPciInfo_v3", pci_info);
  need("nvmlDeviceGetName", name_of);
  need("nvmlDeviceGetUUID", uuid_of);
  need("nvmlDeviceGetMemoryInfo", memory_of);
  find("nvmlDeviceGetMigMode", mig_mode);
  find("nvmlDeviceGetNvLinkState", link_state);
  find("nvmlDeviceGetNvLinkRemoteDeviceType", link_type);
  find("nvmlDeviceGetNvLinkRemotePciInfo_v2", link_remote);
  find("nvmlDeviceGetTemperature", temperature);
  find("nvmlDeviceGetTemperatureThreshold", temperature_limit);
  find("nvmlDeviceGetTotalEccErrors", ecc_errors);
  find("nvmlDeviceGetRemappedRows", remapped_rows);
}

std::string Library::text(Code code) const {
  const char* words = error_string(code);
  return words == nullptr ? "error " + std::to_string(code) : clean_text(words, host::kDeviceTextBytes);
}

}  // namespace dtrain::discover::nvml
