// The drivers of GPUs, as far as files show them: none of their libraries is loaded here.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/host/doctor_facts.h"

namespace dtrain::host {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNvidia = "0x10de";
// The usual places where a program's loader looks, in order; ld.so.cache has a format of its own.
constexpr std::array kLibraryDirectories{"/usr/lib/x86_64-linux-gnu",
                                         "/usr/lib/aarch64-linux-gnu",
                                         "/usr/lib/powerpc64le-linux-gnu",
                                         "/usr/lib64",
                                         "/usr/lib",
                                         "/usr/local/nvidia/lib64",
                                         "/usr/local/lib",
                                         "/usr/local/lib64"};

std::string word(const fs::path& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  return text;
}

std::uint32_t count_devices(const std::string& vendor, const std::string& root) {
  std::uint32_t count = 0;
  std::error_code failed;
  const fs::directory_iterator none;
  for (fs::directory_iterator device(root + "/sys/bus/pci/devices", failed); !failed && device != none; device.increment(failed)) {
    const fs::path& path = device->path();
    if (word(path / "vendor") != vendor) continue;
    const std::string kind = word(path / "class");  // 0xCCSSPP: display controllers, and processing accelerators
    const bool display = kind.starts_with("0x0300") || kind.starts_with("0x0302") || kind.starts_with("0x0380");
    // The board's own chip for a screen is no GPU.
    if ((display || kind.starts_with("0x1200")) && word(path / "device") != "0x515e") ++count;
  }
  return count;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 ..." -> 535.104.05
std::string module_version(const std::string& root) {
  std::ifstream file(root + "/proc/driver/nvidia/version");
  std::string line;
  if (!std::getline(file, line)) return "";
  std::istringstream words(line);
  for (std::string w; words >> w;)
    if (w.find('.') != std::string::npos && w.find_first_not_of("0123456789.") == std::string::npos) return w;
  return "of an unknown version";
}

// libcuda.so.1 is a link to libcuda.so.535.104.05.
void find_library(node::Driver& out, const std::string& root) {
  for (const char* directory : kLibraryDirectories) {
    const std::string path = root + directory + "/libcuda.so.1";
    if (::access(path.c_str(), F_OK) != 0) continue;
    out.library_found = true;
    std::error_code failed;
    const std::string file = fs::canonical(path, failed).filename().string();
    const auto at = file.find(".so.");
    if (!failed && at != std::string::npos && file.find('.', at + 4) != std::string::npos) out.library = file.substr(at + 4);
    return;
  }
}

}  // namespace

node::Driver gpu_driver(const std::string& vendor, const std::string& root) {
  node::Driver out;
  out.devices = count_devices(vendor, root);
  const auto there = [&](const std::string& path) { return ::access((root + path).c_str(), F_OK) == 0; };
  const auto need = [&](const char* path) {
    if (!there(path)) out.missing.emplace_back(path);
  };
  if (vendor != kNvidia) {
    out.module = there("/sys/module/amdgpu") ? "amdgpu" : "";
    if (!out.module.empty()) need("/dev/kfd");
    return out;
  }
  out.module = module_version(root);
  out.other_driver = there("/sys/module/nouveau");
  if (out.module.empty()) return out;
  find_library(out, root);
  need("/dev/nvidiactl");
  need("/dev/nvidia-uvm");
  return out;
}

}  // namespace dtrain::host
