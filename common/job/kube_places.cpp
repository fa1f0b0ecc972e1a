// Where a pod may run: node selectors, names of nodes and affinities, as labels of hosts.
#include <algorithm>
#include <array>

#include "common/job/host_labels.h"
#include "common/job/kube_job.h"
#include "common/job/text.h"

namespace dtrain::job {

namespace {

constexpr std::string_view kRequired = "requiredDuringSchedulingIgnoredDuringExecution";
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kOfEveryHost{
    {{"kubernetes.io/os", "linux"}, {"beta.kubernetes.io/os", "linux"}}};

void want_label(const std::string& name, const std::string& value, RoleSpec& role) {
  if (std::ranges::count(kOfEveryHost, std::pair<std::string_view, std::string_view>(name, value)) == 0) role.node_selector[name] = value;
}

// Names what is left of an affinity; only what hosts must have is evaluated.
void name_preferences(KubeFields& affinity, KubeNotes& notes) {
  for (const YamlEntry* entry : affinity.entries())
    if (entry->key != kRequired) notes.ignore(affinity.path(entry->key), "is not evaluated: only what a host must have is");
}

// One term whose expressions each name one value is a nodeSelector.
void read_node_affinity(KubeFields affinity, RoleSpec& role, KubeNotes& notes) {
  name_preferences(affinity, notes);
  KubeFields required = affinity.map(kRequired);
  const auto terms = required.list("nodeSelectorTerms");
  std::map<std::string, std::string> labels;
  bool plain = terms.size() == 1;
  for (std::size_t i = 0; plain && i < terms.size(); ++i) {
    KubeFields term(terms[i], item_path(required.path("nodeSelectorTerms"), i), notes);
    const auto expressions = term.list("matchExpressions");
    plain = term.entries().size() == 1 && !expressions.empty();
    for (std::size_t e = 0; plain && e < expressions.size(); ++e) {
      KubeFields expression(expressions[e], item_path(term.path("matchExpressions"), e), notes);
      const auto values = expression.list("values");
      plain = expression.text("operator") == "In" && values.size() == 1 && values.front()->kind == YamlNode::Kind::scalar;
      if (plain) labels[expression.text("key").value_or("")] = values.front()->text;
    }
  }
  if (!plain && !terms.empty())
    return notes.ignore(required.path(), "is not evaluated: it is more than labels that hosts must have, each with one value");
  for (const auto& [name, value] : labels) want_label(name, value, role);
}

void read_anti_affinity(KubeFields affinity, RoleSpec& role, KubeNotes& notes) {
  name_preferences(affinity, notes);
  const auto terms = affinity.list(kRequired);
  if (terms.empty()) return;
  if (terms.size() > 1) return notes.ignore(affinity.path(kRequired), "is not evaluated: antiAffinity of a role names one label");
  KubeFields term(terms.front(), item_path(affinity.path(kRequired), 0), notes);
  const std::string key = term.text("topologyKey").value_or("");
  role.anti_affinity = key == kHostnameLabel ? "host" : key;
  notes.ignore(term.path("labelSelector"), "is not evaluated: tasks of this role alone are kept apart, by antiAffinity");
}

}  // namespace

void read_places(KubeFields& pod, RoleSpec& role, KubeNotes& notes) {
  KubeFields selector = pod.map("nodeSelector");
  for (const YamlEntry* entry : selector.entries())
    if (const auto value = selector.text(entry->key)) want_label(entry->key, *value, role);
  if (const auto host = pod.text("nodeName"); host && !host->empty()) want_label(std::string(kHostnameLabel), *host, role);
  if (pod.take("affinity") == nullptr) return;
  KubeFields affinity = pod.map("affinity");
  read_node_affinity(affinity.map("nodeAffinity"), role, notes);
  read_anti_affinity(affinity.map("podAntiAffinity"), role, notes);
  affinity.rest();
}

}  // namespace dtrain::job
