#include "agent/host/known_gpus.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "agent/host/pci_address.h"

namespace dtrain::host {
namespace {

constexpr std::string_view kFirstLine = "dtrain gpus 1";

tl::unexpected<Error> invalid(const std::string& cause) {
  return fail(ErrorCode::invalid, "could not read the numbers of the GPUs: " + cause);
}

}  // namespace

std::string known_gpu_text(const KnownGpu& gpu) { return std::to_string(gpu.index) + " " + gpu.pci; }

Result<KnownGpu> parse_known_gpu(std::string_view text) {
  KnownGpu gpu;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gpu.index);
  if (error != std::errc() || gpu.index > kMostIndex || end == text.data() + text.size() || *end != ' ')
    return invalid("no number begins the line '" + std::string(text) + "'");
  const std::string_view address = text.substr(static_cast<std::size_t>(end - text.data()) + 1);
  const auto parsed = parse_pci_address(address);
  if (!parsed || parsed->text() != address) return invalid("'" + std::string(address) + "' is no PCI address");
  gpu.pci = address;
  return gpu;
}

std::string known_gpus_file(const std::vector<KnownGpu>& gpus) {
  std::string text = std::string(kFirstLine) + "\n";
  for (const KnownGpu& gpu : gpus) text += known_gpu_text(gpu) + "\n";
  return text;
}

Result<std::vector<KnownGpu>> parse_known_gpus(std::string_view text) {
  std::vector<KnownGpu> gpus;
  bool first = true;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) return invalid("the last line is cut");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (std::exchange(first, false)) {
      if (line != kFirstLine) return invalid("it does not begin with '" + std::string(kFirstLine) + "'");
      continue;
    }
    auto gpu = parse_known_gpu(line);
    if (!gpu) return fail(gpu.error());
    if (std::any_of(gpus.begin(), gpus.end(), [&](const KnownGpu& g) { return g.index == gpu->index || g.pci == gpu->pci; }))
      return invalid("'" + std::string(line) + "' names what another line has named");
    if (gpus.size() == kMostGpus) return invalid("it has more than " + std::to_string(kMostGpus) + " GPUs");
    gpus.push_back(std::move(*gpu));
  }
  if (first) return invalid("it is empty");
  return gpus;
}

}  // namespace dtrain::host
