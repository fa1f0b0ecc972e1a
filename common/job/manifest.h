// The user's job file: YAML text in, validated JobSpec out. All mistakes are reported at once, with line and path.
// Format: docs/job-file.md. Pure: relative paths are returned as written; the caller resolves them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/job/job_spec.h"

namespace dtrain::job {

// One mistake. As text: FILE:LINE: PATH: message; next
struct FileError {
  // unknown-key | wrong-type | out-of-range | missing | conflict | unsupported | syntax | limit | template
  std::string code;
  std::string file;
  std::uint32_t line = 0;  // from 1; 0: the mistake concerns the file as a whole
  std::string path;        // spec.roles.worker.replicas, spec.roles.worker.command[1]
  std::string message;     // what is wrong and what would be right
  std::string next;
  std::string text() const;  // without LINE if it is 0, without PATH if it is empty
  template <class V>
  void fields(V& v) {
    v("code", code);
    v("file", file);
    v("line", line);
    v("path", path);
    v("message", message);
    v("next", next);
  }
};

// At most this many mistakes of one file are reported; one more says that there are others.
inline constexpr std::size_t kReportedMistakes = 100;

struct ParseOptions {
  std::string file_name = "-";                // for messages
  std::map<std::string, std::string> params;  // --param K=V: fills ${param:K}
  // --set PATH=V: PATH from the document's root, names joined by dots (`\.` is a dot in a name, a number an element of a
  // list); missing maps on the way are made. V is literal text, or, where a list or a map is wanted, one such as [a, b]. Mistakes in it are
  // reported for the file "--set".
  std::vector<std::pair<std::string, std::string>> sets;
};

struct ParsedJob {
  JobSpec spec;
  std::string package_path;           // as written; "" none. The digest is filled in after packing
  std::vector<std::string> warnings;  // "50 workers on one ps"; parts of a foreign manifest that are not supported
  std::vector<FileError> errors;      // empty: spec is valid
};

// Never throws; any bytes may be given. Cost is bounded by the limits of common/base/limits.h: text beyond
// kJobFileBytes, kYamlNodes or kYamlDepth is refused. Exactly one document of apiVersion dtrain/v1, kind Job.
ParsedJob parse_manifest(std::string_view text, const ParseOptions& options);

// The rules that need no file. The agent checks them again on what a client sends, so nothing in `spec` is trusted.
// Lines are 0, the file is empty.
std::vector<FileError> validate(const JobSpec& spec);

// What is allowed but probably not meant ("50 workers on 1 ps").
std::vector<std::string> warnings_about(const JobSpec& spec);

// The nearest of `known` to `word` by edit distance (insert, delete, replace, swap of neighbours; ASCII case does not
// count), the first of equals; "" when none is within a third of the longer one's length.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

// "500m", "1.5" -> milli-CPUs; "8Gi", "500M", "1e3" -> bytes, rounded up; "90s", "100ms", "6h", "7d", "0" -> Duration.
// The error's message is the cause alone ("must be ..., not `x`"): the caller names the field.
Result<std::uint64_t> parse_cpus(std::string_view text);
Result<std::uint64_t> parse_memory(std::string_view text);
Result<Duration> parse_duration(std::string_view text);

}  // namespace dtrain::job
