#include "agent/dtrainctl/json_view.h"

#include <yaml-cpp/yaml.h>

#include "common/base/steering.h"

namespace dtrain::ctl {
namespace {

void emit_yaml(YAML::Emitter& out, const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      out << YAML::BeginMap;
      if (value.empty()) out << YAML::Flow;
      for (const auto& [key, element] : value.items()) {
        if (with_steering_escaped(key) != key) out << YAML::DoubleQuoted;
        out << YAML::Key << key << YAML::Value;
        emit_yaml(out, element);
      }
      out << YAML::EndMap;
      break;
    case Json::value_t::array:
      if (value.empty()) out << YAML::Flow;
      out << YAML::BeginSeq;
      for (const Json& element : value) emit_yaml(out, element);
      out << YAML::EndSeq;
      break;
    case Json::value_t::string:
      // Always quoted: "true", "3" and "null" stay text.
      out << YAML::DoubleQuoted << value.get_ref<const std::string&>();
      break;
    case Json::value_t::null:
      out << YAML::Null;
      break;
    default:
      out << value.dump();
  }
}

}  // namespace

Json json_of(const wire::ExitView& exit) {
  Json object = Json::object();
  if (exit.signal)
    object["signal"] = *exit.signal;
  else if (exit.code)
    object["code"] = *exit.code;
  if (exit.cause && !exit.cause->empty()) object["cause"] = *exit.cause;
  return object;
}

Json json_of(const wire::TaskView& task) {
  Json object = fields_json(task);
  if (task.pid == 0) object["pid"] = nullptr;
  return object;
}

Json json_of(const wire::EventView& event) {
  Json object = fields_json(event);
  if (event.local == 0) object.erase("local");
  return object;
}

Json json_of(const wire::CpusView& cpus) {
  const auto decimal = [](std::uint64_t millis) {
    return millis % 1000 == 0 ? Json(millis / 1000) : Json(static_cast<double>(millis) / 1000.0);
  };
  return Json{{"total", decimal(cpus.total_millis)}, {"free", decimal(cpus.free_millis)}};
}

Json json_of(const wire::JobDescription& description) {
  Json object = json_of(description.job);
  object["tasks"] = json_of(description.tasks);
  auto spec = wire::decode<job::JobSpec>(description.spec);
  object["spec"] = spec ? spec_json(*spec) : Json(nullptr);   // null: made by an agent of another version
  object["conditions"] = json_of(description.conditions);
  object["restored"] = json_of(description.restored);
  object["first_fault"] = json_of(description.first_fault);
  object["waiting_for"] = json_of(description.waiting_for);
  object["events"] = json_of(description.events);
  return object;
}

Json json_of(const wire::ErrorItem& item) {
  return Json{{"code", item.kind.empty() ? wire::to_string(item.code) : item.kind},
              {"file", item.file}, {"line", item.line}, {"path", item.path},
              {"message", item.message}, {"next", item.next}};
}

Json json_of(const wire::SubmitReply& reply) {
  Json object{{"name", reply.name}, {"id", reply.id}, {"generation", reply.generation}};
  if (reply.unchanged) object["unchanged"] = true;
  if (!reply.warnings.empty()) object["warnings"] = reply.warnings;
  return object;
}

std::string json_text(const Json& value, bool indented) {
  return with_steering_escaped(value.dump(indented ? 2 : -1, ' ', false, Json::error_handler_t::replace));
}

std::string yaml_text(const Json& value) {
  try {
    YAML::Emitter out;
    // Through text, so that bytes that are no UTF-8 are replaced in one place only.
    emit_yaml(out, Json::parse(json_text(value, false)));
    // only text in double quotes contains any; keys are dtrain's own, or quoted because of them
    return with_steering_escaped(out.c_str());
  } catch (const std::exception&) {
    return json_text(value, true);   // JSON is YAML too
  }
}

}  // namespace dtrain::ctl
