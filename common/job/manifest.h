// The job file of a user: YAML text in, validated JobSpec out. Every mistake is reported at once, with line and path.
// Format: docs/job-file.md. Pure: relative paths are returned as written; the caller resolves them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/job_spec.h"

namespace dtrain::job {

// One mistake. As text: FILE:LINE: PATH: message; next
struct FileError {
  std::string code;     // "unknown-key", "wrong-type", "out-of-range", "missing", "conflict", "syntax", "limit", "template"
  std::string file;
  std::uint32_t line = 0;  // from 1; 0: of the file as a whole
  std::string path;     // spec.roles.worker.replicas
  std::string message;  // what is wrong and what would be right
  std::string next;
  std::string text() const;
  template <class V> void fields(V& v) {
    v("code", code); v("file", file); v("line", line); v("path", path); v("message", message); v("next", next);
  }
};

struct ParseOptions {
  std::string file_name = "-";                      // for messages
  std::map<std::string, std::string> params;        // --param K=V: fills ${param:K}
  std::vector<std::pair<std::string, std::string>> sets;  // --set PATH=V, PATH below the document's root
};

struct ParsedJob {
  JobSpec spec;
  std::string package_path;              // as written; "" none. The digest is filled in after packing
  std::vector<std::string> warnings;     // "50 workers on one ps", what a foreign manifest asks that is not honoured
  std::vector<FileError> errors;         // empty: spec is valid
};

ParsedJob parse_manifest(std::string_view text, const ParseOptions& options);

// The rules that need no file: run again by the agent on what a client sends. Lines are 0.
std::vector<FileError> validate(const JobSpec& spec);

// The nearest of `known` to `word` by edit distance, or "" when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

// "500m", "1.5" -> milli-CPUs; "8Gi", "500M", "1e3" -> bytes; "90s", "100ms", "6h", "7d" -> Duration.
Result<std::uint64_t> parse_cpus(std::string_view text);
Result<std::uint64_t> parse_memory(std::string_view text);
Result<Duration> parse_duration(std::string_view text);

}  // namespace dtrain::job
