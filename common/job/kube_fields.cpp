#include "common/job/kube_fields.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/job/manifest.h"
#include "common/job/map_reader.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

using Kind = YamlNode::Kind;

// Why a field has no effect here, wherever it stands.
constexpr std::array<std::pair<std::string_view, std::string_view>, 35> kReasons{{
    {"serviceAccountName", "tasks run as the user who submits the job"},
    {"serviceAccount", "tasks run as the user who submits the job"},
    {"automountServiceAccountToken", "tasks run as the user who submits the job, and there is no token"},
    {"securityContext", "tasks run as the user who submits the job, with that user's rights"},
    {"tolerations", "hosts have no taints; nodeSelector chooses hosts by their labels"},
    {"affinity", "is not evaluated; nodeSelector chooses hosts by their labels, and antiAffinity of a dtrain/v1 job spreads tasks"},
    {"topologySpreadConstraints", "is not evaluated; antiAffinity of a dtrain/v1 job spreads tasks over labels"},
    {"schedulerName", "dtrain places all tasks itself"},
    {"runtimeClassName", "no container runtime is used"},
    {"livenessProbe", "is not run; watchdog of a dtrain/v1 job notices a process that hangs"},
    {"readinessProbe", "is not run; a task is ready when it runs, or with notify when it says so"},
    {"startupProbe", "is not run; startTimeout of a dtrain/v1 job limits the time to the start"},
    {"lifecycle", "its commands are not run; stopSignal of a dtrain/v1 job chooses the signal that asks a task to end"},
    {"queue", "there are no queues by name; jobs start by priority, then by age"},
    {"minResources", "dtrain adds up what the roles ask for"},
    {"scheduleTimeoutSeconds", "a job waits for room without a limit"},
    {"metrics", "the number of tasks follows no metrics; dtrainctl scale changes it"},
    {"tensorboard", "none is started; dtrainctl exec, or a role of its own, runs one"},
    {"hostAliases", "addresses are given to tasks as numbers; names are the host's matter"},
    {"dnsConfig", "names are the host's matter"},
    {"subPathExpr", "is not evaluated; write the path"},
    {"podAffinity", "is not evaluated; placement: pack of a dtrain/v1 job puts its tasks near each other"},
    {"backend", "the script chooses its backend"},
    {"withGloo", "PADDLE_GLOO_HTTP_ENDPOINT and its like are not set"},
    {"spotReplicaSpec", "all tasks of a role are alike"},
    {"sizeLimit", "what tasks write there has the limits of the host's file system"},
    {"items", "the directory holds the files under their own names"},
    {"hostIPC", "a task without an image is in the host's namespaces"},
    {"hostPID", "a task without an image is in the host's namespaces"},
    {"hostname", "a task has the name of its host"},
    {"subdomain", "a task has the name of its host"},
    {"masterPort", "each task has a port of its own, which MASTER_PORT names"},
    {"cronPolicy", "the job runs once; a timer that submits it again, with a generateName, repeats it"},
    {"modelVersion", "no image is made of what the job leaves"},
    {"cacheBackend", "tasks read their directories as they are"},
}};

// What a server writes where the user wrote nothing.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kDefaults{{
    {"schedulerName", "default-scheduler"},
    {"serviceAccountName", "default"},
    {"serviceAccount", "default"},
    {"terminationMessagePath", "/dev/termination-log"},
    {"terminationMessagePolicy", "File"},
    {"enableServiceLinks", "true"},
    {"preemptionPolicy", "PreemptLowerPriority"},
}};

bool is_default(const YamlEntry& entry) {
  return entry.value.kind == Kind::scalar &&
         std::ranges::count(kDefaults, std::pair<std::string_view, std::string_view>(entry.key, entry.value.text)) > 0;
}

std::string is_kind(const YamlNode& node) { return node.kind == Kind::scalar ? in_quotes(node.text) : std::string(kind_name(node)); }

}  // namespace

bool asks_for_nothing(const YamlNode& value) {
  switch (value.kind) {
    case Kind::null: return true;
    case Kind::scalar: return value.text.empty() || value.text == "false";
    case Kind::sequence: return value.items.empty();
    case Kind::mapping: return std::ranges::all_of(value.entries, [](const YamlEntry& entry) { return entry.value.kind == Kind::null; });
  }
  return false;
}

KubeFields::KubeFields(const YamlNode* node, std::string path, KubeNotes& notes) : node_(node), path_(std::move(path)), notes_(notes) {
  if (node_ != nullptr) node_ = &node_->structure();
  if (node_ == nullptr || node_->kind == Kind::mapping) return;
  if (node_->kind != Kind::null)
    notes_.refuse("wrong-type", path_, "must be a map of keys and values, not " + is_kind(*node_), "write KEY: VALUE lines below it");
  node_ = nullptr;
}

const YamlNode* KubeFields::take(std::string_view key) {
  taken_.emplace(key);
  const YamlNode* found = node_ == nullptr ? nullptr : node_->find(key);
  return found == nullptr || found->kind == Kind::null ? nullptr : found;
}

void KubeFields::skip(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) taken_.emplace(key);
}

std::vector<const YamlNode*> KubeFields::list(std::string_view key) {
  std::vector<const YamlNode*> out;
  const YamlNode* found = take(key);
  if (found == nullptr) return out;
  found = &found->structure();
  if (found->kind != Kind::sequence) {
    notes_.refuse("wrong-type", path(key), "must be a list, not " + is_kind(*found), "begin each of its items with a dash");
    return out;
  }
  for (const YamlNode& item : found->items) out.push_back(&item);
  return out;
}

std::optional<std::string> KubeFields::text(std::string_view key) {
  const YamlNode* found = take(key);
  if (found == nullptr) return std::nullopt;
  if (found->kind == Kind::scalar) return found->text;
  notes_.refuse("wrong-type", path(key), "must be a single value, not " + is_kind(*found), "give one or leave the key out");
  return std::nullopt;
}

std::optional<bool> KubeFields::flag(std::string_view key) {
  const auto word = text(key);
  if (!word) return std::nullopt;
  if (*word == "true" || *word == "false") return *word == "true";
  notes_.refuse("wrong-type", path(key), "must be true or false, not " + in_quotes(*word), "write one of the two");
  return std::nullopt;
}

std::optional<std::int64_t> KubeFields::number(std::string_view key, std::int64_t least, std::int64_t most) {
  const YamlNode* found = take(key);
  std::int64_t value = 0;
  if (found == nullptr || !read_whole_number(*found, path(key), least, most, notes_.errors, value)) return std::nullopt;
  return value;
}

std::vector<const YamlEntry*> KubeFields::entries() const {
  std::vector<const YamlEntry*> out;
  if (node_ == nullptr) return out;
  for (const YamlEntry& entry : node_->entries)
    if (entry.value.kind != Kind::null) out.push_back(&entry);
  return out;
}

void KubeFields::rest() {
  for (const YamlEntry* entry : entries()) {
    if (taken_.contains(entry->key) || asks_for_nothing(entry->value) || is_default(*entry)) continue;
    const auto reason = std::ranges::find(kReasons, entry->key, [](const auto& known) { return known.first; });
    const std::string near = reason == kReasons.end() ? nearest(entry->key, {taken_.begin(), taken_.end()}) : "";
    notes_.ignore(path(entry->key), "has no effect here" + (reason == kReasons.end() ? "" : ": " + std::string(reason->second)) +
                                        (near.empty() ? "" : "; did you mean " + in_quotes(near) + "?"));
  }
}

}  // namespace dtrain::job
