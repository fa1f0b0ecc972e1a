// What a pod does before a container's command, as a part of the task: its init containers in their order, and variables that are read
// from files. A shell does both, with all words as its arguments, and then becomes the command.
#include <algorithm>
#include <iterator>
#include <utility>

#include "common/job/kube_job.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

// r DIRECTORY PREFIX: each file whose name may be one of a variable, unless there is such a variable already.
constexpr const char* kReadFiles =
    "r() { for f in \"$1\"/*; do n=$2${f##*/}; case $n in [0-9]*|*[!A-Za-z0-9_]*) continue;; esac; test -f \"$f\" || continue; "
    "eval \"test -n \\\"\\${$n+x}\\\"\" && continue; v=$(cat -- \"$f\") || exit; export \"$n=$v\"; done; }; ";

class ShellLine {
 public:
  // Of several files for one variable the last counts, so that it is read first.
  void read(const std::vector<KubeFiles>& files) {
    for (auto from = files.rbegin(); from != files.rend(); ++from) {
      reads_ = true;
      script_ += "r " + add(from->directory) + " " + add(from->prefix) + "; ";
    }
  }
  void run(const KubeStep& step) {
    script_ += "( ";
    read(step.files);
    if (!step.work_dir.empty()) script_ += "cd -- " + add(step.work_dir) + " && ";
    for (const std::string& word : step.words) script_ += add(word) + " ";
    script_ += ") || exit; ";
  }
  std::vector<std::string> then(std::vector<std::string> command) {
    const std::string script = (reads_ ? kReadFiles : "") + script_ + "shift " + std::to_string(words_.size()) + "; exec \"$@\"";
    std::vector<std::string> out{"sh", "-c", script, "sh"};
    std::ranges::move(words_, std::back_inserter(out));
    std::ranges::move(command, std::back_inserter(out));
    return out;
  }

 private:
  std::string add(std::string word) {
    words_.push_back(std::move(word));
    return "\"${" + std::to_string(words_.size()) + "}\"";
  }

  bool reads_ = false;
  std::string script_;
  std::vector<std::string> words_;
};

}  // namespace

std::vector<std::string> with_steps(const std::vector<KubeStep>& before, const std::vector<KubeFiles>& files,
                                    std::vector<std::string> command) {
  if (before.empty() && files.empty()) return command;
  ShellLine line;
  for (const KubeStep& step : before) line.run(step);
  line.read(files);
  return line.then(std::move(command));
}

void read_init_containers(KubeFields& pod, const std::string& role, KubeJob& job) {
  const auto containers = pod.list("initContainers");
  for (std::size_t i = 0; i < containers.size(); ++i) {
    KubeFields fields(containers[i], item_path(pod.path("initContainers"), i), job.notes);
    if (fields.text("restartPolicy").value_or("") == "Always") {
      job.notes.ignore(fields.path(), "is not started: each task runs one command; a role of its own can do what it does");
      continue;
    }
    KubeRole first;
    first.container = fields.path();
    fields.skip({"name", "ports", "imagePullPolicy", "volumeMounts"});  // read_mounts() has read these
    read_words(fields, first, false, job);
    first.work_dir = fields.text("workingDir").value_or("");
    first.image = fields.text("image").value_or("");
    read_variables(fields, first, job);
    fields.rest();
    job.roles[role].before.push_back(std::move(first));
  }
}

void read_env_from(KubeFields& fields, KubeRole& out, KubeJob& job) {
  const auto sources = fields.list("envFrom");
  for (std::size_t i = 0; i < sources.size(); ++i) {
    KubeFields source(sources[i], item_path(fields.path("envFrom"), i), job.notes);
    const std::string prefix = source.text("prefix").value_or("");
    for (const auto& [key, word] : {std::pair("configMapRef", "configMap"), std::pair("secretRef", "secret")}) {
      if (source.take(key) == nullptr) continue;
      KubeFields reference = source.map(key);
      const std::string name = reference.text("name").value_or("");
      const bool optional = reference.flag("optional").value_or(false);
      reference.rest();
      const auto directory = mapped_directory(word, name, optional, reference.path(), job);
      if (!directory) continue;
      if (!optional) add_once(job.spec.require_paths, *directory);
      out.files.push_back({*directory, prefix});
    }
    source.rest();
  }
}

}  // namespace dtrain::job
