#include "agent/proc/device_nodes.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "agent/proc/small_file.h"

namespace dtrain::proc {

namespace {

constexpr const char* kNvidia = "0x10de";
constexpr const char* kAmd = "0x1002";

class Nodes {
 public:
  Nodes(const std::string& root, std::vector<std::string>& out) : root_(root), out_(out) {}

  Status of(const std::string& pci) {
    std::string vendor = read_small_file(root_ + "/sys/bus/pci/devices/" + pci + "/vendor").value_or("");
    while (!vendor.empty() && vendor.back() == '\n') vendor.pop_back();
    if (vendor == kNvidia) return nvidia(pci);
    if (vendor == kAmd) return amd(pci);
    return unknown(pci, "it is neither NVIDIA's nor AMD's, or not on the bus");
  }

 private:
  static tl::unexpected<Error> unknown(const std::string& pci, const std::string& cause) {
    return fail(ErrorCode::unavailable, "could not tell the device nodes of GPU " + pci + ": " + cause,
                "check that its driver is loaded; until then its tasks may open every device");
  }

  void add(const std::string& node) {
    if (std::find(out_.begin(), out_.end(), node) == out_.end()) out_.push_back(node);
  }

  // Its driver says which of its nodes is whose. The module for unified memory is loaded by the first program that needs it, which a
  // task that may not open it yet cannot be.
  Status nvidia(const std::string& pci) {
    const std::string text = read_small_file(root_ + "/proc/driver/nvidia/gpus/" + pci + "/information").value_or("");
    constexpr std::string_view kKey = "Device Minor:";
    const std::size_t key = text.find(kKey);
    const std::size_t first = key == std::string::npos ? key : text.find_first_of("0123456789", key + kKey.size());
    const std::size_t line_end = text.find('\n', key);
    if (first == std::string::npos || first > line_end) return unknown(pci, "its driver names no minor number");
    if (read_small_file(root_ + "/proc/devices").value_or("").find(" nvidia-uvm\n") == std::string::npos)
      return unknown(pci, "module nvidia-uvm is not loaded (nvidia-modprobe -u -c 0)");
    add("/dev/nvidia" + text.substr(first, text.find_first_not_of("0123456789", first) - first));
    for (const char* node : {"/dev/nvidiactl", "char-nvidia-uvm", "/dev/nvidia-modeset", "char-nvidia-caps", "char-gdrdrv"}) add(node);
    return {};
  }

  Status amd(const std::string& pci) {
    bool renders = false;
    std::error_code error;
    std::vector<std::string> found;
    const std::string drm = root_ + "/sys/bus/pci/devices/" + pci + "/drm";
    for (std::filesystem::directory_iterator i(drm, error), end; !error && i != end; i.increment(error)) {
      const std::string name = i->path().filename();
      if (name.rfind("renderD", 0) != 0 && name.rfind("card", 0) != 0) continue;
      renders = renders || name[0] == 'r';
      found.push_back("/dev/dri/" + name);
    }
    if (!renders) return unknown(pci, "its driver offers none");
    std::sort(found.begin(), found.end());
    for (const std::string& node : found) add(node);
    add("/dev/kfd");
    return {};
  }

  const std::string& root_;
  std::vector<std::string>& out_;
};

}  // namespace

Result<std::vector<std::string>> device_nodes(const std::vector<std::string>& pci, const std::string& root) {
  std::vector<std::string> found;
  Nodes nodes(root, found);
  for (const std::string& address : pci)
    if (const Status known = nodes.of(address); !known) return fail(known.error());
  return found;
}

}  // namespace dtrain::proc
