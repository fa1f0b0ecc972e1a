// Stands in for NVIDIA's management library: two GPUs, at 0000:10:00.0 and 0000:20:00.0. What it does wrong
// is in its file name, so that a test chooses by copying it.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace {

bool named(const char* what) {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(&named), &info) != 0 && strstr(info.dli_fname, what) != nullptr;
}

constexpr int kDriverNotLoaded = 9, kGpuIsLost = 15;
struct PciInfo {
  char legacy_address[16];
  unsigned domain, bus, device, device_and_vendor, subsystem;
  char address[32];
};
struct Memory {
  unsigned long long total, free, used;
};

unsigned index_of(void* device) { return static_cast<unsigned>(reinterpret_cast<size_t>(device) - 1); }

}  // namespace

extern "C" {

int nvmlInit_v2() {
  if (named("hangs")) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // a test may hold it back from its parent
    pause();
  }
  if (named("crashes")) abort();
  return named("refuses") ? kDriverNotLoaded : 0;
}
const char* nvmlErrorString(int code) { return code == kGpuIsLost ? "GPU is lost" : "Driver Not Loaded"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 2;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (named("loses") && index == 1) return kGpuIsLost;
  if (named("mumbles") && index == 1) return kDriverNotLoaded;
  *device = reinterpret_cast<void*>(static_cast<size_t>(index) + 1);
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* info) {
  *info = PciInfo{};
  info->bus = 0x10 * (index_of(device) + 1);
  info->device_and_vendor = 0x233010de;
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) {
  snprintf(text, size, "NVIDIA Fake 80GB");
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  snprintf(text, size, "GPU-of-nvml-%u", index_of(device));
  return 0;
}
int nvmlDeviceGetTemperature(void* device, unsigned, unsigned* celsius) {
  *celsius = 61 + index_of(device);
  return named("falls") && index_of(device) == 1 ? kGpuIsLost : 0;
}
int nvmlDeviceGetTemperatureThreshold(void*, unsigned threshold, unsigned* celsius) {
  *celsius = threshold == 1 ? 92 : 99;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, unsigned type, unsigned counter, unsigned long long* count) {
  *count = type == 1 && counter == 0 ? (named("rots") && index_of(device) == 1 ? 3 : 0) : 1000;
  return 0;
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected, unsigned* pending, unsigned* failed) {
  *corrected = 5;
  *uncorrected = 1;
  *pending = named("rots") && index_of(device) == 1;
  *failed = 0;
  return 0;
}
// Two links between them, or each to a switch.
int nvmlDeviceGetNvLinkState(void*, unsigned link, unsigned* active) {
  *active = link < 2 && (named("links") || named("switches"));
  return link < 4 ? 0 : 2;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, unsigned* type) {
  *type = named("switches") ? 2 : 0;
  return 0;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned, PciInfo* info) {
  *info = PciInfo{};
  info->bus = named("switches") ? 0xff : 0x10 * (2 - index_of(device));
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *pending = *current = named("cuts") && index_of(device) == 0;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = Memory{80ull << 30, 1, 2};
  return 0;
}

}  // extern "C"
