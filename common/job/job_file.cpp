#include "common/job/job_file.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "common/job/job_yaml.h"
#include "common/job/kube_job.h"
#include "common/job/manifest_input.h"
#include "common/job/slider.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

using Kind = YamlNode::Kind;

constexpr std::string_view kOwnVersion = "dtrain/v1";
// Who defines the kinds that are read: an apiVersion's group is one of these, or ends with a dot and one of these.
constexpr std::array<std::string_view, 3> kGroups{"kubeflow.org", "kubedl.io", "tensorflow.org"};

std::string text_of(const YamlNode& tree, std::string_view key) {
  const YamlNode* found = tree.kind == Kind::mapping ? tree.find(key) : nullptr;
  return found != nullptr && found->kind == Kind::scalar ? found->text : "";
}

// A job file of dtrain, also with a mistake in its head.
bool is_own(const YamlNode& tree) {
  const std::string version = text_of(tree, "apiVersion"), kind = text_of(tree, "kind");
  return version.empty() || kind.empty() || !nearest(version, {std::string(kOwnVersion)}).empty();
}

bool is_job_kind(const std::string& kind) { return kind == kTrainJob || manifest_kind(kind, "") != nullptr; }
// List, and TFJobList and so on.
bool is_list(const YamlNode& tree) {
  constexpr std::string_view kList = "List";
  const std::string kind = text_of(tree, "kind");
  return kind.ends_with(kList) && tree.find("items") != nullptr &&
         (kind == kList || is_job_kind(kind.substr(0, kind.size() - kList.size())));
}
std::string nearest_job_kind(const std::string& kind) {
  std::vector<std::string> known{std::string(kTrainJob)};
  for (const ManifestKind& one : manifest_kinds()) known.emplace_back(one.kind);
  return nearest(kind, known);
}

std::string group_of(const std::string& version) { return version.substr(0, version.find('/')); }

bool is_known_group(const std::string& group) {
  return std::ranges::any_of(kGroups, [&](std::string_view known) {
    return group == known || (group.size() > known.size() && group.ends_with(known) && group[group.size() - known.size() - 1] == '.');
  });
}

// What a document calls the runtime that it needs; of a runtime its own name; "": neither.
std::string runtime_of(const YamlNode& tree) {
  const YamlNode* spec = text_of(tree, "kind") == kTrainJob ? tree.find("spec") : nullptr;
  const YamlNode* reference = spec != nullptr ? spec->find("runtimeRef") : nullptr;
  return reference != nullptr ? text_of(*reference, "name") : "";
}
std::string name_of_runtime(const YamlNode& tree) {
  const std::string kind = text_of(tree, "kind");
  const YamlNode* metadata = kind == "TrainingRuntime" || kind == "ClusterTrainingRuntime" ? tree.find("metadata") : nullptr;
  return metadata != nullptr ? text_of(*metadata, "name") : "";
}

// Annotations that have an operator do something for the job; all others are notes for people and other programs.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kActingAnnotations{{
    {"kubedl.io/git-sync-config", "no code is fetched: give it as a package (--package DIRECTORY)"},
    {"kubedl.io/tensorboard-config", "none is started; dtrainctl exec, or a role of its own, runs one"},
    {"kubedl.io/enable-elastic-training", "the number of tasks follows minReplicas of elasticPolicy, and dtrainctl scale"},
}};
constexpr std::string_view kPriorityOfKueue = "kueue.x-k8s.io/priority-class";

// The fields that only a server writes are left out.
void read_kube_metadata(KubeFields metadata, KubeJob& job) {
  job.spec.name = metadata.text("name").value_or("");
  if (const auto prefix = metadata.text("generateName"); prefix && job.spec.name.empty()) job.spec.generate_name = *prefix;
  job.name_space = metadata.text("namespace").value_or("default");
  KubeFields labels = metadata.map("labels");
  for (const YamlEntry* entry : labels.entries())
    if (const auto value = labels.text(entry->key)) {
      job.spec.labels[entry->key] = *value;
      if (entry->key == kPriorityOfKueue) read_priority_class(labels.path(entry->key), *value, job);
    }
  KubeFields annotations = metadata.map("annotations");
  for (const auto& [name, why] : kActingAnnotations)
    if (annotations.take(name) != nullptr) job.notes.ignore(annotations.path(name), std::string(why));
  metadata.skip({"annotations", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "clusterName", "managedFields"});
  metadata.rest();
}

// validate() speaks of fields of dtrain/v1: names the manifest's instead where it is known.
std::vector<FileError> in_words_of(const KubeJob& job, const std::string& base, std::vector<FileError> errors) {
  // Already refused for what the manifest lacks.
  std::erase_if(errors, [&](const FileError& error) {
    const auto of =
        std::ranges::find_if(job.roles, [&](const auto& role) { return error.path == "spec.roles." + role.first + ".command"; });
    return (error.path == "spec.roles" && job.roles.empty()) || (of != job.roles.end() && of->second.words.empty());
  });
  for (FileError& error : errors) {
    if (error.path == "spec.framework") error.path = base + "kind";
    if (error.path == "spec.roles" && !job.roles.empty()) {
      const std::string& one = job.roles.begin()->second.path;
      error.path = one.substr(0, one.find_last_of(".["));
      continue;
    }
    for (const auto& [role, of] : job.roles) {
      const std::string own = "spec.roles." + role;
      if (error.path != own && !error.path.starts_with(own + ".")) continue;
      const bool of_container = error.path.starts_with(own + ".command") || error.path.starts_with(own + ".env");
      error.message += " (" + error.path + " of the dtrain/v1 job)";
      error.path = of_container && !of.container.empty() ? of.container : of.path;
      break;
    }
    if (error.path.starts_with("spec.roles") || error.path.starts_with("metadata")) error.path = base + error.path;
  }
  return errors;
}

void read_manifest_job(const YamlNode& tree, const std::string& at, const wire::ManifestSettings& settings, const KubeRuntimes& runtimes,
                       KubeNotes& notes, ParsedJob& out) {
  const std::string base = at.empty() ? "" : at + ".";
  const std::string kind = text_of(tree, "kind"), version = text_of(tree, "apiVersion");
  const ManifestKind* known = manifest_kind(kind, group_of(version));
  if (!is_known_group(group_of(version)) && (known == nullptr || known->group.empty()))
    return notes.refuse("unsupported", base + "apiVersion", "a " + kind + " of " + in_quotes(version) + " is not read by this version",
                        "it reads those of kubeflow.org, tensorflow.org, trainer.kubeflow.org, kubedl.io, and batch.paddlepaddle.org");
  KubeJob job{settings, notes, out.spec, known != nullptr ? known->container : std::string_view(), ""};
  job.runtimes = &runtimes;
  KubeFields root(&tree, at, notes);
  root.skip({"apiVersion", "kind", "status"});
  read_kube_metadata(root.map("metadata"), job);
  if (root.take("spec") == nullptr)
    return notes.refuse("missing", base + "spec", "is required: what the job runs", "give the manifest's spec");
  KubeFields spec = root.map("spec");
  root.rest();
  if (known != nullptr) read_replica_job(spec, *known, job);
  else read_train_job(spec, job);
  read_run_policy(spec, job);
  spec.rest();
  finish_roles(job);
  expand_roles(job);
  notes.errors.add_rules(in_words_of(job, base, validate(out.spec)));
}

class Reader {
 public:
  Reader(const ParseOptions& options, const wire::ManifestSettings& settings) : options_(options), settings_(settings) {}

  // Finds the runtimes that TrainJobs among these documents name.
  void find_runtimes(std::vector<YamlNode>& documents) {
    std::set<std::string> wanted;
    for (const YamlNode& tree : documents) wanted.insert(runtime_of(tree));
    for (YamlNode& tree : documents) {
      if (const std::string name = name_of_runtime(tree); !name.empty() && wanted.contains(name)) {
        FileErrors places(options_.file_name);
        resolve(tree, options_.params, used_, places, true);
        runtimes_.emplace(name, KubeRuntime{tree.find("spec"), places});
      }
    }
  }

  // `slider`: what an application of Slider runs, if the file says so.
  void read(YamlNode& tree, std::size_t number, const YamlNode* slider) {
    if (is_slider_app(tree) || runtimes_.contains(name_of_runtime(tree))) return;
    const bool application = is_slider_resources(tree);
    if (!application && is_own(tree)) return read_own(tree);
    FileErrors report(options_.file_name);
    apply_sets(tree, options_.sets, report);
    resolve(tree, options_.params, used_, report, true);
    KubeNotes notes{report, report.for_same_places()};
    if (application) {
      ParsedJob job;
      read_slider(tree, slider, notes, job);
      return add(std::move(job), notes);
    }
    if (!is_list(tree)) return read_one(tree, "", "document " + std::to_string(number), notes);
    const YamlNode& items = *tree.find("items");
    if (items.kind != Kind::sequence) {
      notes.refuse("wrong-type", "items", "must be a list", "give the jobs");
      return add({}, notes);
    }
    for (std::size_t i = 0; i < items.items.size(); ++i) {
      const std::string at = item_path("items", i);
      KubeNotes of_item{i == 0 ? notes.errors : notes.errors.for_same_places(), notes.ignored};
      read_one(items.items[i], at, at, of_item);
    }
  }

  JobFile take() {
    for (const auto& entry : options_.params)
      if (only_manifests_ && !used_.contains(entry.first)) file_.warnings.push_back("--param " + entry.first + " is not used in the file");
    if (file_.errors.empty() && file_.jobs.empty())
      file_.errors.push_back({"missing", options_.file_name, 0, "", "the file holds no job", "give a job, or a manifest of one"});
    check_names();
    for (ParsedJob& job : file_.jobs)
      for (std::string& warning : job.warnings) warning = prefix_among(file_.jobs.size(), job.spec) + warning;
    for (auto& [after, warning] : no_jobs_) (after == 0 ? file_.warnings : file_.jobs[after - 1].warnings).push_back(std::move(warning));
    return std::move(file_);
  }

 private:
  void read_own(YamlNode& tree) {
    only_manifests_ = false;
    ParsedJob job;
    FileErrors report(options_.file_name);
    read_job_document(tree, options_, report, job);
    add(std::move(job), report.take());
  }

  void read_one(const YamlNode& tree, const std::string& at, const std::string& where, KubeNotes& notes) {
    const std::string kind = text_of(tree, "kind");
    const bool others = is_job_kind(kind) || !is_known_group(group_of(text_of(tree, "apiVersion")));  // batch/v1 has a Job, too
    if (const std::string near = others ? "" : nearest_job_kind(kind); !near.empty()) {
      notes.refuse("unsupported", join_path(at, "kind"), "unknown kind " + in_quotes(kind), "did you mean " + near + "?");
      return add({}, notes);
    }
    if (!is_job_kind(kind)) {
      // Where it stands in the file.
      no_jobs_.emplace_back(file_.jobs.size(), options_.file_name + ":" + std::to_string(tree.line) + ": " + where + ": kind " +
                                                   in_quotes(kind) + " of " + in_quotes(text_of(tree, "apiVersion")) +
                                                   " is no job that this version reads: it is ignored");
      return;
    }
    ParsedJob job;
    read_manifest_job(tree, at, settings_, runtimes_, notes, job);
    add(std::move(job), notes);
  }

  void add(ParsedJob job, KubeNotes& notes) {
    for (const FileError& ignored : notes.ignored.take()) job.warnings.push_back(ignored.text());
    add(std::move(job), notes.errors.take());
  }

  void add(ParsedJob job, std::vector<FileError> errors) {
    if (errors.empty())
      for (auto& warning : warnings_about(job.spec)) job.warnings.push_back(std::move(warning));
    file_.errors.insert(file_.errors.end(), errors.begin(), errors.end());
    file_.jobs.push_back(std::move(job));
  }

  void check_names() {
    std::set<std::string> names;
    for (const ParsedJob& job : file_.jobs)
      if (!job.spec.name.empty() && !names.insert(job.spec.name).second)
        file_.errors.push_back({"conflict", options_.file_name, 0, "metadata.name",
                                "two jobs of the file are called " + in_quotes(job.spec.name), "give each a name of its own"});
  }

  const ParseOptions& options_;
  const wire::ManifestSettings& settings_;
  KubeRuntimes runtimes_;
  std::set<std::string> used_;
  bool only_manifests_ = true;                                // other documents say themselves which parameter they do not use
  std::vector<std::pair<std::size_t, std::string>> no_jobs_;  // what is said of documents that are none, after so many jobs
  JobFile file_;
};

}  // namespace

std::string prefix_among(std::size_t jobs, const JobSpec& spec) {
  return jobs > 1 ? "job " + (spec.name.empty() ? spec.generate_name : spec.name) + ": " : "";
}

bool needs_settings(std::string_view text) {
  const auto documents = parse_yaml_documents(text);
  return documents && !std::ranges::all_of(*documents, is_own);
}

JobFile read_job_file(std::string_view text, const ParseOptions& options, const wire::ManifestSettings& settings) {
  auto documents = parse_yaml_documents(text);
  if (!documents) {
    const YamlError& error = documents.error();
    JobFile out;
    out.errors.push_back({error.code, options.file_name, error.line, "", error.message, error.next});
    return out;
  }
  if (!options.sets.empty() && documents->size() > 1) {
    JobFile out;
    out.errors.push_back({"conflict", "--set", 0, options.sets.front().first,
                          "the file holds several documents, and --set would change each", "split the file"});
    return out;
  }
  Reader reader(options, settings);
  reader.find_runtimes(*documents);
  const auto slider = std::ranges::find_if(*documents, is_slider_app);
  for (std::size_t i = 0; i < documents->size(); ++i) reader.read((*documents)[i], i + 1, slider == documents->end() ? nullptr : &*slider);
  return reader.take();
}

std::string to_job_file(const JobFile& file) {
  const auto comment = [](const std::string& warning) {
    std::string out = "# not honoured: ";
    for (const char c : warning) out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    return out + "\n";
  };
  std::string out;
  for (const std::string& warning : file.warnings) out += comment(warning);
  for (std::size_t i = 0; i < file.jobs.size(); ++i) {
    if (i > 0) out += "---\n";
    for (const std::string& warning : file.jobs[i].warnings) out += comment(warning);
    out += to_short_yaml(file.jobs[i].spec);
  }
  return out;
}

}  // namespace dtrain::job
