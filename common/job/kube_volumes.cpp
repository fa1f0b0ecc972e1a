// Volumes of a manifest as directories of the hosts. A task has the file system of its host, so that a mount is honoured where the
// directory lies at the place of the mount; elsewhere its user is told what the hosts have to provide.
#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>

#include "common/job/kube_job.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

constexpr std::string_view kSharedMemory = "/dev/shm";

struct HostDirectory {
  std::string path;   // "": at the place of each of its mounts
  bool make = false;  // it may have to be made
};

std::string trimmed(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

bool is_plain(std::string_view path) {
  constexpr std::string_view kOthers = "/._-";
  return std::ranges::all_of(path, [&](unsigned char c) { return std::isalnum(c) != 0 || kOthers.find(char(c)) != kOthers.npos; });
}

std::optional<HostDirectory> read_host_path(KubeFields source, KubeNotes& notes) {
  const std::string path = source.text("path").value_or("");
  const std::string type = source.text("type").value_or("");
  source.rest();
  if (path.starts_with('/')) return HostDirectory{trimmed(path), type == "DirectoryOrCreate"};
  notes.refuse("out-of-range", source.path("path"), "must be an absolute path, not " + in_quotes(path), "give a directory of the hosts");
  return std::nullopt;
}

// The kinds that name something outside of the pod: the field, the key of its name, what it is called.
struct NamedKind {
  const char *field, *name, *word;
  const char* below = "";  // a key whose value follows the name, after a colon
};
constexpr NamedKind kNamed[] = {{"persistentVolumeClaim", "claimName", "claim"},
                                {"secret", "secretName", "secret"},
                                {"configMap", "name", "configMap"},
                                {"nfs", "server", "NFS directory", "path"},
                                {"awsElasticBlockStore", "volumeID", "disk"},
                                {"azureDisk", "diskName", "disk"},
                                {"azureFile", "shareName", "share"},
                                {"cinder", "volumeID", "disk"},
                                {"gcePersistentDisk", "pdName", "disk"},
                                {"glusterfs", "path", "volume"},
                                {"portworxVolume", "volumeID", "disk"},
                                {"vsphereVolume", "volumePath", "disk"}};

std::optional<HostDirectory> read_volume(KubeFields volume, KubeJob& job) {
  volume.skip({"name"});
  if (volume.take("hostPath") != nullptr) return read_host_path(volume.map("hostPath"), job.notes);
  if (volume.take("emptyDir") != nullptr) {
    KubeFields source = volume.map("emptyDir");
    source.skip({"medium"});
    source.rest();
    return HostDirectory{"", true};
  }
  if (volume.take("ephemeral") != nullptr) return HostDirectory{"", true};  // a claim that lives as long as the pod
  for (const NamedKind& kind : kNamed) {
    if (volume.take(kind.field) == nullptr) continue;
    KubeFields source = volume.map(kind.field);
    std::string name = source.text(kind.name).value_or("");
    if (*kind.below != '\0') name += ":" + source.text(kind.below).value_or("");
    const bool optional = source.flag("optional").value_or(false);
    // The rights are those of the directory, and how it comes there is the hosts' matter.
    source.skip({"defaultMode", "fsType", "partition", "kind", "cachingMode", "secretName", "secretNamespace", "endpoints"});
    source.rest();
    const auto directory = mapped_directory(kind.word, name, optional, volume.path(), job);
    return directory ? std::optional(HostDirectory{*directory, false}) : std::nullopt;
  }
  const auto entries = volume.entries();
  const auto source = std::ranges::find_if(entries, [](const YamlEntry* entry) { return entry->key != "name"; });
  if (source == entries.end()) return HostDirectory{"", true};  // no source is an emptyDir
  job.notes.refuse("unsupported", volume.path(), "this version knows no directory for " + in_quotes((*source)->key),
                   "mount what it is on the hosts, and give that directory as hostPath");
  return std::nullopt;
}

void read_mount(KubeFields& mount, const HostDirectory& directory, KubeJob& job) {
  const std::string place = trimmed(mount.text("mountPath").value_or(""));
  const std::string below = mount.text("subPath").value_or("");
  if (mount.flag("readOnly").value_or(false))
    job.notes.ignore(mount.path("readOnly"), "is not enforced: the rights of the directory on the host count");
  if (!place.starts_with('/'))
    return job.notes.refuse("out-of-range", mount.path("mountPath"), "must be an absolute path, not " + in_quotes(place), "give one");
  if (place == kSharedMemory && (directory.path.empty() || directory.path == kSharedMemory)) return;  // every host has it
  std::string source = directory.path.empty() ? place : directory.path;
  if (!below.empty() && !directory.path.empty()) source = trimmed(source + "/" + below);
  add_once(directory.make ? job.spec.make_dirs : job.spec.require_paths, source);
  if (directory.path.empty())
    job.notes.ignore(mount.path("mountPath"), "is a directory of the host: tasks there share it, and what is in it stays after the job");
  if (source == place) return;
  add_once(job.spec.require_paths, place);
  // A path that a shell would read in its own way is in no line that people paste into one.
  const bool plain = is_plain(place) && is_plain(source);
  job.notes.ignore(mount.path("mountPath"), "tasks see the host's own file system: on each host " + (plain ? place : in_quotes(place)) +
                                                " must lead to " + (plain ? source : in_quotes(source)) +
                                                (plain ? " (ln -s " + source + " " + place + ")" : "") +
                                                "; a host without it gets no tasks of the job");
}

}  // namespace

std::optional<std::string> mapped_directory(const std::string& what, const std::string& name, bool optional, const std::string& path,
                                            KubeJob& job) {
  if (name.empty()) {
    job.notes.refuse("missing", path, "names no " + what, "give its name");
    return std::nullopt;
  }
  const auto found = job.settings.volumes.find(name);
  if (found != job.settings.volumes.end()) return trimmed(found->second);
  if (optional) job.notes.ignore(path, what + " " + name + " maps to no directory: it is left out, which `optional` allows");
  else
    job.notes.refuse("missing", path, what + " " + name + " maps to no directory: volumes in dtraind.yaml has no entry for it",
                     "add there: volumes: {" + name + ": /the/directory/on/the/hosts}");
  return std::nullopt;
}

void read_mounts(KubeFields* container, KubeFields& pod, KubeJob& job) {
  const auto volumes = pod.list("volumes");
  std::vector<std::pair<const YamlNode*, std::string>> mounts;  // with their paths
  const auto mounts_of = [&](KubeFields& fields) {
    const auto list = fields.list("volumeMounts");
    for (std::size_t i = 0; i < list.size(); ++i) mounts.emplace_back(list[i], item_path(fields.path("volumeMounts"), i));
  };
  if (container != nullptr) mounts_of(*container);
  const auto before = pod.list("initContainers");
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i]->kind != YamlNode::Kind::mapping) continue;  // which read_init_containers() refuses
    KubeFields fields(before[i], item_path(pod.path("initContainers"), i), job.notes);
    mounts_of(fields);
  }
  std::set<std::string> mounted, known;
  for (const auto& [node, path] : mounts)
    if (const YamlNode* name = node->find("name")) mounted.insert(name->text);
  std::map<std::string, HostDirectory> directories;
  for (std::size_t i = 0; i < volumes.size(); ++i) {
    KubeFields volume(volumes[i], item_path(pod.path("volumes"), i), job.notes);
    const std::string name = volume.text("name").value_or("");
    known.insert(name);
    if (!mounted.contains(name)) {
      job.notes.ignore(volume.path(), "the task's container does not mount it");
      continue;
    }
    if (auto directory = read_volume(volume, job)) directories.emplace(name, std::move(*directory));
  }
  for (const auto& [node, path] : mounts) {
    KubeFields mount(node, path, job.notes);
    const std::string name = mount.text("name").value_or("");
    if (!known.contains(name))
      job.notes.refuse("missing", mount.path("name"), "the pod has no volume " + in_quotes(name),
                       "add it to volumes, or leave the mount out");
    const auto directory = directories.find(name);
    if (directory == directories.end()) continue;
    read_mount(mount, directory->second, job);
    mount.rest();
  }
}

}  // namespace dtrain::job
