// A file of jobs: job files of dtrain/v1, manifests of other systems, several documents, lists of either. Everything is read before
// anything is handed in, so that one mistake stops all. Formats: docs/job-file.md, docs/manifests.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/job/manifest.h"
#include "common/wire/manifest_settings.h"

namespace dtrain::job {

struct JobFile {
  std::vector<ParsedJob> jobs;        // in order, each without errors of its own
  std::vector<std::string> warnings;  // about the file as a whole, and what stands before the first job in it and is none
  std::vector<FileError> errors;      // of all jobs; empty: all are valid
};

// Never throws; any bytes may be given, with the limits of parse_manifest().
JobFile read_job_file(std::string_view text, const ParseOptions& options, const wire::ManifestSettings& settings);

// What stands before a message about one job of a file that holds so many: its name, if there are several.
std::string prefix_among(std::size_t jobs, const JobSpec& spec);

// True if the file holds something other than one dtrain/v1 job, so that the settings matter. False also for what is no YAML.
bool needs_settings(std::string_view text);

// One dtrain/v1 document. Its errors are added to `report`.
class FileErrors;
struct YamlNode;
void read_job_document(YamlNode& tree, const ParseOptions& options, FileErrors& report, ParsedJob& out);

// The file that means the jobs, with what is not honoured as comments.
std::string to_job_file(const JobFile& file);

}  // namespace dtrain::job
