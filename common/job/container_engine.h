// Container engines: how the command of a task whose role names an image is run in that image. Pure: from values to the arguments of
// programs; the agent looks which engine its host has, and runs them. All differences between engines are in one table (docs/adding.md).
//
// An image changes the files that a task sees. Network, shared memory, user and control group are those that it would have without one, so
// that limits, freezes, kills and logs are dtrain's own. A task's main process is then the engine's program, which becomes the command, or
// passes signals on to it and ends with its exit code; whatever else runs in the image ends with the command.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace dtrain::job {

inline constexpr std::size_t kImageNameBytes = 512;
// What an agent does with images if it has no engine: the command runs on the host itself (tasks.imageFallback).
inline constexpr std::string_view kImagesOnHost = "host";
// In the environment of each task that runs in an image: its name.
inline constexpr const char* kImageVariable = "DTRAIN_IMAGE";

using Variables = std::map<std::string, std::string>;

struct InImage {
  std::string program;  // the engine's, absolute
  std::string name;     // of the container; what a kill has left of an older one is removed
  std::string image;
  std::uint32_t uid = 0, gid = 0;        // of the task's user, also in the image; of root no other users can be mapped
  std::string work_dir;                  // in the image
  std::vector<std::string> directories;  // of the host, at the same paths in the image; files, too
  std::vector<std::string> devices;      // nodes, and names of CDI such as nvidia.com/gpu=0
  std::vector<std::string> argv;         // the command
  Variables env;                         // of the command
  std::vector<std::string> later;        // names of variables that each attempt adds to the environment
  std::string rank;                      // that of them by which processes of one task differ, which run at once; "": there is one process
  Variables surroundings;                // of the engine's program: where the user's images are
};

struct Started {
  std::vector<std::string> argv;
  Variables env;
};

// What a pull that failed means, by words in the complaint of the engine's program.
struct PullFault {
  enum class Then : unsigned char { again, never, elsewhere };  // "elsewhere": the host is at fault
  std::string_view words;
  Then then;
  std::string_view next;  // what people do
};

struct ContainerEngine {
  std::string_view name;     // in dtraind.yaml, and the file name of its program
  std::string_view helper;   // a program that it needs beside its own; "": none
  std::string_view install;  // what people are told to do where it is missing
  bool needs_cgroup_v2;      // it works only where that is the sole version of control groups
  Result<Started> (*run)(const InImage& task);
  // What ends with 0 if the image is on the host, with `absent` if not, and otherwise cannot tell; and what fetches it. The latter writes a
  // line to its stdout every two seconds, which begins with the KiB that have been fetched so far; and what a pull that was killed has left
  // is removed by the next one.
  std::vector<std::string> (*look)(const std::string& program, const std::string& image);
  int absent;
  std::vector<std::string> (*pull)(const std::string& program, const std::string& image);
  bool (*only_here)(std::string_view image);  // no registry has an image of such a name
  std::span<const PullFault> faults;          // the first whose words are in the complaint counts; the last fits all
  std::string_view mark;                      // a variable that all processes in an image of this engine begin with, and no others
};

std::span<const ContainerEngine* const> container_engines();
const ContainerEngine* find_engine(std::string_view name);
std::string engine_names();  // "podman or enroot"
const PullFault& fault_of(const ContainerEngine& engine, std::string_view complaint);

// "" too: none. What begins with "-" would be an option of the engine's program.
bool is_image_name(std::string_view text);

// Sorted, and without those that lie in another of them.
std::vector<std::string> without_nested(std::vector<std::string> directories);

// The names of CDI for these GPUs ("GPU-4f5c..." or "0") by the text of specifications; empty if one of them is not in there.
std::vector<std::string> cdi_names(std::string_view specifications, const std::vector<std::string>& gpu_ids);

}  // namespace dtrain::job
