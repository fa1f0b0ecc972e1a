// The manifest of a job for Kubernetes while it is read: what is shared by the files kube_*.cpp and by the table of kinds.
// docs/manifests.md has the rules.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job/job_spec.h"
#include "common/job/kube_fields.h"
#include "common/wire/manifest_settings.h"

namespace dtrain::job {

struct KubeJob;

// A role of a kind: as the manifest spells it (case does not count), and as a job has it.
struct KindRole {
  std::string_view spelled, role;
  RestartPolicy restart = RestartPolicy::never;  // unless the manifest says otherwise
  bool idle = false;                             // it may have no command, or that of an SSH server: other tasks start processes beside it
};

// A kind of manifest with replica specs: one line of the table.
struct ManifestKind {
  std::string_view kind;
  std::string_view
      replica_specs;           // the field of spec that holds the roles; "": spec itself does, and the pod's restartPolicy is the role's
  std::string_view container;  // of several containers this one is the task
  Framework framework = kFrameworkUnlessSaid;
  std::span<const KindRole> roles = {};
  // Reads the fields of spec that only this kind has, after the roles, and those of a role.
  void (*own)(KubeFields& spec, KubeJob& job) = [](KubeFields&, KubeJob&) {};
  void (*own_of_role)(KubeFields& replica, const std::string& role, KubeJob& job) = [](KubeFields&, const std::string&, KubeJob&) {};
  std::string_view group = {};  // who defines it; "": those of Kubeflow and KubeDL
  bool else_first = false;      // of several containers of which none has that name, the first is the task
  // Reads a form without replica specs, as the first versions had it; false: it has another.
  bool (*older)(KubeFields& spec, KubeJob& job) = [](KubeFields&, KubeJob&) { return false; };
};
std::span<const ManifestKind> manifest_kinds();
// Null: unknown. TfJob is TFJob. `group`: that of its apiVersion.
const ManifestKind* manifest_kind(std::string_view kind, std::string_view group);
inline constexpr std::string_view kTrainJob = "TrainJob";  // which has runtimes in place of replica specs

// A variable or an argument with its text as written, or a template that takes its place.
struct KubeText {
  std::string path, name, text, template_text = {};
};

// Variables that are files of the hosts: those of a directory (envFrom), or one file (secretKeyRef, configMapKeyRef).
struct KubeFiles {
  std::string path;
  std::string name;  // of the variable of one file; of a directory what stands before the names of its files
  bool one = false;  // a file
  bool may_be_missing = false;
};

// What remains of a role's container until all roles are known, since arguments may name variables of the framework.
struct KubeRole {
  std::string path;       // of the role
  std::string container;  // path of the container
  std::string name = {};  // of an init container
  std::vector<KubeText> words;
  std::vector<KubeText> variables;
  std::vector<KubeFiles> files = {};
  std::vector<KubeRole> before = {};               // the pod's init containers, of which these two are known
  std::string work_dir = {}, image = {};           // "": those of the task
  std::map<std::string, std::string> of_pod = {};  // what fieldRef calls the labels and annotations of the pod
};

// An init container: its words, with $(NAME) expanded and its variables in front.
struct KubeStep {
  std::string name;
  std::vector<KubeFiles> files;
  std::string work_dir;
  std::vector<std::string> words;
};

// A runtime of TrainJobs that stands in the same file.
struct KubeRuntime {
  const YamlNode* spec = nullptr;  // null: it has none
  FileErrors places;               // of its fields
};
using KubeRuntimes = std::map<std::string, KubeRuntime>;

struct KubeJob {
  const wire::ManifestSettings& settings;
  KubeNotes& notes;
  JobSpec& spec;
  std::string_view container_name;  // of several containers this one is the task
  std::string name_space;
  const KubeRuntimes* runtimes = nullptr;
  bool else_first = false;            // ManifestKind::else_first
  std::set<std::string> idle = {};    // roles with KindRole::idle
  bool own_clean_pod_policy = false;  // the kind has words of its own for it, and has read them
  bool pod_restarts = false;          // the pod's restartPolicy is the only one
  std::map<std::string, KubeRole> roles = {};
  std::map<std::string, std::pair<Duration, std::string>> graces = {};  // with the path that says so
};

// A pod template: fills in the role. `path`: of the template.
void read_pod_template(const YamlNode* node, const std::string& path, const std::string& role, KubeJob& job);
// Below spec of a pod, or of an override of it, all but the containers.
void read_pod_fields(KubeFields& pod, const std::string& role, KubeJob& job);
// Which hosts may run it.
void read_places(KubeFields& pod, RoleSpec& role, KubeNotes& notes);
// Command, args, env, workingDir and image of a container, or of a TrainJob's trainer.
void read_command(KubeFields& fields, const std::string& role, KubeJob& job);
// Its command and args. `idle`: there may be none.
void read_words(KubeFields& fields, KubeRole& out, bool idle, KubeJob& job);
void read_variables(KubeFields& fields, KubeRole& out, KubeJob& job);
void read_env_from(KubeFields& fields, KubeRole& out, KubeJob& job);
// `source`: a secretKeyRef or configMapKeyRef; `word`: what it names.
void read_key(KubeFields source, const std::string& word, const KubeText& variable, KubeRole& out, KubeJob& job);
void read_init_containers(KubeFields& pod, const std::string& role, KubeJob& job);
// The command, after the steps, with the variables of the files.
std::vector<std::string> with_steps(const std::vector<KubeStep>& before, const std::vector<KubeFiles>& files,
                                    std::vector<std::string> command);
void read_kube_resources(KubeFields resources, RoleSpec& role, KubeNotes& notes);
// Which directories of the hosts the mounts of a container (null: none) and of the init containers are, by the volumes of their pod.
void read_mounts(KubeFields* container, KubeFields& pod, KubeJob& job);
// The directory that dtraind.yaml names for a claim, secret or configMap; without one a mistake, or, if it is optional, a note.
std::optional<std::string> mapped_directory(const std::string& what, const std::string& name, bool optional, const std::string& path,
                                            KubeJob& job);

// runPolicy, also with a capital R, and its fields where older versions have them, straight below spec.
void read_run_policy(KubeFields& spec, KubeJob& job);
void read_priority_class(const std::string& path, const std::string& name, KubeJob& job);

// A TrainJob, whose roles follow from its runtime.
void read_train_job(KubeFields& spec, KubeJob& job);
// Replica specs, by the table.
void read_replica_job(KubeFields& spec, const ManifestKind& kind, KubeJob& job);

// `other` is like `main` in all but the command: it waits for processes that those of `main` start.
void add_waiting_role(const std::string& main, const std::string& other, KubeJob& job);

// What follows from all roles together: order of start, the time that tasks have to end.
void finish_roles(KubeJob& job);
// After all is read: fills in commands and variables, in which $(NAME) is expanded.
void expand_roles(KubeJob& job);

// The directories that tasks are to find, each once.
void add_once(std::vector<std::string>& paths, const std::string& path);

}  // namespace dtrain::job
