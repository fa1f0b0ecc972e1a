#include "common/job/manifest.h"

#include <set>

#include "common/job/job_file.h"
#include "common/job/manifest_fields.h"
#include "common/job/manifest_input.h"
#include "common/job/start_order.h"

namespace dtrain::job {

namespace {

using Kind = YamlNode::Kind;

constexpr std::string_view kApiVersion = "dtrain/v1";
constexpr std::string_view kKind = "Job";

void read_metadata(const YamlNode& node, const std::string& path, FileErrors& report, JobSpec& out) {
  MapReader map(node, path, report);
  map.text("name", out.name);
  map.text("generateName", out.generate_name);
  map.text_map("labels", out.labels);
  map.done();
  if (map.has("name") && map.has("generateName"))
    report.add("conflict", map.path("generateName"), "name and generateName are both given", "give one of them");
}

void read_roles(const YamlNode& node, const std::string& path, FileErrors& report, JobSpec& out) {
  if (node.kind != Kind::mapping)
    return report.add("wrong-type", path, "must be a map of roles such as {worker: {...}}, not " + std::string(kind_name(node)));
  std::set<std::string> ordered;  // roles that name what they start after
  for (const auto& entry : node.entries) {
    bool has_start_after = false;
    read_role(entry.value, join_path(path, entry.key), entry.key, out.framework, report, out.roles[entry.key], has_start_after);
    if (has_start_after) ordered.insert(entry.key);
  }
  for (auto& [name, role] : out.roles)
    if (!ordered.contains(name)) role.start_after = default_start_after(out, name);
}

void read_hook(const YamlNode& node, const std::string& path, FileErrors& report, NotifyHook& out) {
  MapReader map(node, path, report);
  for (const char* key : {"command", "on"})
    if (!map.has(key)) report.add("missing", map.path(key), "is required: {command: [/usr/local/bin/page], on: [Failed]}");
  map.texts("command", out.command);
  map.texts("on", out.on);
  map.done();
}

void read_spec(const YamlNode& node, const std::string& path, FileErrors& report, ParsedJob& out) {
  MapReader map(node, path, report);
  JobSpec& spec = out.spec;
  map.word("framework", spec.framework);
  if (map.text("package", out.package_path) && out.package_path.empty())
    report.add("out-of-range", map.path("package"), "must be the path of a directory, not empty", "leave it out for no package");
  map.text("workDir", spec.work_dir);
  if (map.node("environment"))
    report.add("unsupported", map.path("environment"), "this version does not run tasks in an environment of their own",
               "name an image that has what they need, install it on the hosts, or put it into the package");
  std::string image;
  map.text("image", image);
  map.text_map("env", spec.env);
  map.text_map("options", spec.options);
  if (const YamlNode* required = map.node("requires")) {
    MapReader inner(*required, map.path("requires"), report);
    inner.texts("paths", spec.require_paths);
    inner.texts("directories", spec.make_dirs);
    inner.done();
  }
  if (const YamlNode* roles = map.node("roles")) read_roles(*roles, map.path("roles"), report, spec);
  for (auto& [name, role] : spec.roles)
    if (role.image.empty()) role.image = image;
  if (const YamlNode* checkpoint = map.node("checkpoint"))
    read_checkpoint(*checkpoint, map.path("checkpoint"), report, spec.checkpoint.emplace());
  if (const YamlNode* policy = map.node("policy")) read_policy(*policy, map.path("policy"), report, spec.policy);
  if (const YamlNode* hook = map.node("notify")) read_hook(*hook, map.path("notify"), report, spec.notify);
  map.boolean("suspend", spec.suspend);
  map.done();
}

// False when the document is of another kind, so that every further mistake would be noise.
bool is_ours(MapReader& root, FileErrors& report) {
  std::string version(kApiVersion), kind(kKind);
  for (const char* key : {"apiVersion", "kind"})
    if (!root.has(key))
      report.add("missing", key, "is required: apiVersion: " + std::string(kApiVersion) + ", kind: " + std::string(kKind));
  root.text("apiVersion", version);
  root.text("kind", kind);
  if (version == kApiVersion && kind == kKind) return true;
  report.add("unsupported", version == kApiVersion ? "kind" : "apiVersion",
             "this version reads apiVersion " + std::string(kApiVersion) + ", kind " + std::string(kKind) + " only, not " +
                 in_quotes(version) + ", " + in_quotes(kind),
             "write it as a " + std::string(kApiVersion) + " job");
  return false;
}

}  // namespace

void read_job_document(YamlNode& tree, const ParseOptions& options, FileErrors& report, ParsedJob& out) {
  if (tree.kind != Kind::mapping)
    return report.add_at(tree.line, "syntax", "",
                         "a job file is a map with apiVersion, kind, metadata and spec, not " + std::string(kind_name(tree)));
  apply_sets(tree, options.sets, report);
  std::set<std::string> used;
  resolve(tree, options.params, used, report);
  MapReader root(tree, "", report);
  if (!is_ours(root, report)) return;
  if (const YamlNode* metadata = root.node("metadata")) read_metadata(*metadata, "metadata", report, out.spec);
  if (const YamlNode* spec = root.node("spec")) read_spec(*spec, "spec", report, out);
  else report.add("missing", "spec", "is required: what the job runs");
  root.done();
  report.add_rules(validate(out.spec));
  for (const auto& entry : options.params)
    if (!used.contains(entry.first)) out.warnings.push_back("--param " + entry.first + " is not used in the file");
}

ParsedJob parse_manifest(std::string_view text, const ParseOptions& options) {
  ParsedJob out;
  FileErrors report(options.file_name);
  if (auto tree = parse_yaml(text)) read_job_document(*tree, options, report, out);
  else report.add_at(tree.error().line, tree.error().code, "", tree.error().message, tree.error().next);
  out.errors = report.take();
  if (out.errors.empty())
    for (auto& warning : warnings_about(out.spec)) out.warnings.push_back(std::move(warning));
  return out;
}

}  // namespace dtrain::job
