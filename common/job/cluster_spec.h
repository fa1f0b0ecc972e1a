// What one task is given so that it finds the others: argv and environment, by framework. Rules: docs/frameworks.md
// (which names the sources).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"

namespace dtrain::job {

struct TaskAddress {
  std::string host;        // the host's task address, as it stands in cluster specs
  std::uint16_t port = 0;  // reserved for this task in this generation
  // Puts an IPv6 address in brackets, since its port could not be told apart otherwise.
  std::string text() const { return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port); }
  template <class V>
  void fields(V& v) {
    v("host", host);
    v("port", port);
  }
};

struct Restore {
  std::string path;  // directory, prefix (TensorFlow V2), or file
  std::int64_t step = 0;
  template <class V>
  void fields(V& v) {
    v("path", path);
    v("step", step);
  }
};

// One generation, as all its tasks see it.
struct ClusterView {
  std::string job_name;
  JobId job = 0;
  Generation generation = 0;
  std::map<TaskId, TaskAddress> tasks;  // every task of the generation
  std::optional<Restore> restore;
};

// The names by which each maker's runtime finds a task's GPUs; both empty: it has none.
struct GpuIds {
  std::vector<std::string> cuda, rocr;
  bool cuda_by_number = false;  // some are given by number: CUDA must count in the order of PCI addresses
};

// What differs for this task and its host.
struct TaskView {
  TaskId task;
  std::string node;  // its name
  GpuIds gpu_ids;
  std::string work_dir;     // the directory it starts in
  std::string package_dir;  // the job's writable copy
  std::string interface;    // of the task address; "": unknown
  std::string notify_socket;
  std::string user;                             // "": its host looks it up
  std::map<std::string, std::string> pass_env;  // tasks.passEnv of the host, with values
  bool in_image = false;                        // it has the image's PATH
};

struct Rendered {
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;  // without DTRAIN_ATTEMPT: the shim sets it per attempt
};

// Templates:
//   {hosts:R}     ip:port of every task of role R, by index, joined by commas
//   {host:R:I}    ip:port of task I of role R
//   {ip:R:I}      the address of task I of role R without its port (and without brackets)
//   {count:R}     number of tasks of role R in this generation; {count}: of all roles
//   {port:R}      this task's own port when R is its role, else the port of task 0 of R
//   {job.name|generation} {task.name|type|index|rank|address|host|port} {work.dir} {package.dir}
//   {env:NAME}    the variable that the framework or dtrain sets for this task; "" if neither does
//   {checkpoint.dir|path|step}  path and step are empty when nothing is restored
// Only a brace followed by one of these names or prefixes and closed before any blank, quote or brace is a template; all others
// are literal, and {{hosts:ps}} is the text {hosts:ps}. Fails naming the first unknown name.
Result<std::string> render_template(std::string_view text, const JobSpec& spec, const ClusterView& cluster, const TaskView& task);

// The variables in which the ranks of a task differ, one map for each, all of the same names, which replace those of Rendered::env. Empty:
// the task is one process, with those alone.
std::vector<std::map<std::string, std::string>> rank_variables(const JobSpec& spec, const ClusterView& cluster, const TaskId& task);

// The processes of a task that take part in its job's communication: RoleSpec::nproc_per_node, and 1 where that is 0.
std::uint32_t ranks_of_task(const JobSpec& spec, const TaskId& task);

// Position of a task among all of its generation, from 0, by RoleRules::order: chief or master, then workers, then
// the other roles in alphabetical order, evaluators last, each by index. 0 when the task is not in the generation.
std::uint32_t rank_of(const JobSpec& spec, const ClusterView& cluster, const TaskId& task);

// The names a template may use, checked at submit: no placement is needed. Returns each unknown "{name}".
std::vector<std::string> unknown_templates(std::string_view text, const JobSpec& spec);

// TF_CONFIG for one task; nullopt where the rules say it is not set (one replica in all).
std::optional<std::string> tf_config(const JobSpec& spec, const ClusterView& cluster, const TaskId& task);

// Everything together: framework variables, DTRAIN_*, rendered templates, and the user's env last.
Result<Rendered> render(const JobSpec& spec, const ClusterView& cluster, const TaskView& task);

}  // namespace dtrain::job
