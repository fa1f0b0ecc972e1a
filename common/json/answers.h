// The answers of an agent (common/wire/view.h) as JSON and YAML, for all programs that show them: through the same fields()
// that encode them, so that keys are the contract's. Where the contract differs from the struct, there is an overload here.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/job/job_spec.h"
#include "common/json/json.h"
#include "common/wire/control.h"
#include "common/wire/view.h"

namespace dtrain::json {

// {"code":N} | {"signal":"SIGKILL"}, and "cause" where one is known.
Json of(const wire::ExitView& exit);
// pid null while there is no process.
Json of(const wire::TaskView& task);
// "local" only for events of the node itself.
Json of(const wire::EventView& event);
// {"total","free"} as whole or decimal CPUs.
Json of(const wire::CpusView& cpus);
// The job's keys at the top level; the spec in the words of a job file.
Json of(const wire::JobDescription& description);
// "code" is a stable word: "unknown-key", "not-found", ...
Json of(const wire::ErrorItem& item);
// {"name","id","generation"}; "unchanged" and "warnings" only if there are any.
Json of(const wire::SubmitReply& reply);

// A job spec in the words of the job file's spec: (docs/job-file.md), every effective value filled in.
Json of_spec(const job::JobSpec& spec);

template <class T>
Json of(const T& value);
template <class T>
Json of(const std::optional<T>& value) {
  return value ? of(*value) : Json(nullptr);
}
template <class T>
Json of(const std::vector<T>& values) {
  Json array = Json::array();
  for (const T& value : values) array.push_back(of(value));
  return array;
}
template <class T>
Json of(const std::map<std::string, T>& values) {
  Json object = Json::object();
  for (const auto& [key, value] : values) object[key] = of(value);
  return object;
}

struct JsonFields {
  Json& object;
  template <class T>
  void operator()(const char* name, const T& value) {
    object[name] = of(value);
  }
  // A later field is shown if it holds something, as it is encoded.
  template <class T>
  void operator()(const char* name, const T& value, wire::Since) {
    if (!wire::detail::is_empty(value)) (*this)(name, value);
  }
};

// Every field of a struct, in declaration order.
template <class T>
Json of_fields(const T& value) {
  Json object = Json::object();
  JsonFields visitor{object};
  const_cast<T&>(value).fields(visitor);  // fields() is shared with the decoder; it only reads here
  return object;
}

template <class T>
Json of(const T& value) {
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) return Json(value);
  else return of_fields(value);
}

// Text that leaves the program, `indented` for people. Bytes that are no UTF-8 (a task's STATUS) are replaced and never an error.
std::string text(const Json& value, bool indented);
std::string yaml(const Json& value);

}  // namespace dtrain::json
