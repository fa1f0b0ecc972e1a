#include "common/json/answers.h"

#include <yaml-cpp/yaml.h>

#include "common/base/steering.h"

namespace dtrain::json {
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
    case Json::value_t::null: out << YAML::Null; break;
    default: out << value.dump();
  }
}

}  // namespace

Json of(const wire::ExitView& exit) {
  Json object = Json::object();
  if (exit.signal) object["signal"] = *exit.signal;
  else if (exit.code) object["code"] = *exit.code;
  if (exit.cause && !exit.cause->empty()) object["cause"] = *exit.cause;
  return object;
}

Json of(const wire::TaskView& task) {
  Json object = of_fields(task);
  if (task.pid == 0) object["pid"] = nullptr;
  return object;
}

Json of(const wire::EventView& event) {
  Json object = of_fields(event);
  if (event.local == 0) object.erase("local");
  return object;
}

Json of(const wire::CpusView& cpus) {
  const auto decimal = [](std::uint64_t millis) {
    const std::uint64_t whole = millis / 1000, thousandths = millis % 1000;
    return thousandths == 0 ? Json(whole) : Json::parse(std::to_string(whole) + "." + std::to_string(1000 + thousandths).substr(1));
  };
  return Json{{"total", decimal(cpus.total_millis)}, {"free", decimal(cpus.free_millis)}};
}

Json of(const wire::JobDescription& description) {
  Json object = of(description.job);
  object["tasks"] = of(description.tasks);
  auto spec = wire::decode<job::JobSpec>(description.spec);
  object["spec"] = spec ? of_spec(*spec) : Json(nullptr);  // null: made by an agent of another version
  object["conditions"] = of(description.conditions);
  object["restored"] = of(description.restored);
  object["first_fault"] = of(description.first_fault);
  // As LOCAL_RANK counts.
  if (const auto& fault = description.first_fault) object["first_fault"]["rank"] = fault->rank > 0 ? Json(fault->rank - 1) : Json(nullptr);
  object["waiting_for"] = of(description.waiting_for);
  object["events"] = of(description.events);
  return object;
}

Json of(const wire::ErrorItem& item) {
  return Json{{"code", item.kind.empty() ? wire::to_string(item.code) : item.kind},
              {"file", item.file},
              {"line", item.line},
              {"path", item.path},
              {"message", item.message},
              {"next", item.next}};
}

Json of(const wire::SubmitReply& reply) {
  Json object{{"name", reply.name}, {"id", reply.id}, {"generation", reply.generation}};
  if (reply.unchanged) object["unchanged"] = true;
  if (!reply.warnings.empty()) object["warnings"] = reply.warnings;
  return object;
}

std::string text(const Json& value, bool indented) {
  return with_steering_escaped(value.dump(indented ? 2 : -1, ' ', false, Json::error_handler_t::replace));
}

std::string yaml(const Json& value) {
  try {
    YAML::Emitter out;
    // Through text, so that bytes that are no UTF-8 are replaced in one place only.
    emit_yaml(out, Json::parse(text(value, false)));
    // only text in double quotes contains any; keys are dtrain's own, or quoted because of them
    return with_steering_escaped(out.c_str());
  } catch (const std::exception&) {
    return text(value, true);  // JSON is YAML too
  }
}

}  // namespace dtrain::json
