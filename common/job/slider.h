// Applications of Apache Slider: resources.json says what YARN gives to each component, appConfig.json what runs. Those that ran
// scripts of TensorFlow become a job. docs/manifests.md has the rules.
#pragma once

#include "common/job/kube_fields.h"
#include "common/job/manifest.h"

namespace dtrain::job {

bool is_slider_resources(const YamlNode& tree);
bool is_slider_app(const YamlNode& tree);

// `app` null: there is none in the file, which is a mistake.
void read_slider(const YamlNode& resources, const YamlNode* app, KubeNotes& notes, ParsedJob& out);

}  // namespace dtrain::job
