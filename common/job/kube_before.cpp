// What a pod does before a container's command, as a part of the task: its init containers in their order, and variables that are read
// from files. A shell does both, with all words as its arguments, and then becomes the command.
#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "common/job/kube_job.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

// r DIRECTORY PREFIX: each file whose name may be one of a variable, unless there is such a variable already.
constexpr const char* kReadFiles =
    "r() { for dtrain_f in \"$1\"/*; do dtrain_n=$2${dtrain_f##*/}; case $dtrain_n in [0-9]*|*[!A-Za-z0-9_]*) continue;; esac; "
    "test -f \"$dtrain_f\" || continue; eval \"test -n \\\"\\${$dtrain_n+x}\\\"\" && continue; "
    "dtrain_v=$(cat -- \"$dtrain_f\") || exit; export \"$dtrain_n=$dtrain_v\"; done; }; "
    // k FILE NAME OPTIONAL: the one file.
    "k() { test -e \"$1\" || test -z \"$3\" || return 0; "
    "dtrain_v=$(cat -- \"$1\") || { dtrain_c=$?; echo \"could not set variable $2: $1 could not be read\" >&2; exit $dtrain_c; }; "
    "export \"$2=$dtrain_v\"; }; ";

// f NAME: an init container failed. The last lines of stderr are shown with the job's first fault.
constexpr const char* kStepFailed =
    "f() { dtrain_c=$?; echo \"init container $1 failed with exit code $dtrain_c\" >&2; exit $dtrain_c; }; ";

class ShellLine {
 public:
  // Of several files for one variable the last counts, so that it is read first.
  void read(const std::vector<KubeFiles>& files) {
    for (auto from = files.rbegin(); from != files.rend(); ++from) {
      reads_ = true;
      script_ += (from->one ? "k " : "r ") + add(from->path) + " " + add(from->name) + (from->may_be_missing ? " yes; " : " ''; ");
    }
  }
  void run(const KubeStep& step) {
    steps_ = true;
    script_ += "( ";
    read(step.files);
    if (!step.work_dir.empty()) script_ += "cd -- " + add(step.work_dir) + " && ";
    for (const std::string& word : step.words) script_ += add(word) + " ";
    script_ += ") || f " + add(step.name) + "; ";
  }
  std::vector<std::string> then(std::vector<std::string> command) {
    const std::string script = std::string(reads_ ? kReadFiles : "") + (steps_ ? kStepFailed : "") + script_ + "shift " +
                               std::to_string(words_.size()) + "; exec \"$@\"";
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

  bool reads_ = false, steps_ = false;
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
    first.of_pod = job.roles[role].of_pod;
    first.name = fields.text("name").value_or(item_path("initContainers", i));
    fields.skip({"ports", "imagePullPolicy", "volumeMounts"});  // read_mounts() has read these
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
      add_once(job.spec.require_paths, *directory);
      out.files.push_back({*directory, prefix});
    }
    source.rest();
  }
}

void read_key(KubeFields source, const std::string& word, const KubeText& variable, KubeRole& out, KubeJob& job) {
  const std::string name = source.text("name").value_or(""), key = source.text("key").value_or("");
  const bool optional = source.flag("optional").value_or(false);
  source.rest();
  const auto plain = [](std::string_view text, std::string_view more) {
    return !text.empty() && std::ranges::all_of(text, [&](unsigned char c) {
      return (c < 0x80 && std::isalnum(c) != 0) || more.find(static_cast<char>(c)) != std::string_view::npos;
    });
  };
  if (!plain(key, "-._"))
    return job.notes.refuse("out-of-range", source.path("key"), "must be letters, digits, `-`, `.` and `_`, not " + in_quotes(key),
                            "give the name of a file");
  if (!plain(variable.name, "_") || std::isdigit(static_cast<unsigned char>(variable.name.front())) != 0)
    return job.notes.refuse("out-of-range", source.path(), "a shell reads the value, and knows no variable " + in_quotes(variable.name),
                            "use a name of letters, digits and `_`");
  const auto directory = mapped_directory(word, name, optional, source.path(), job);
  if (!directory) return;
  add_once(job.spec.require_paths, *directory);
  out.files.push_back({*directory + "/" + key, variable.name, true, optional});
}

}  // namespace dtrain::job
