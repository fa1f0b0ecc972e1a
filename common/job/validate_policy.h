// The rules of policy, checkpoint and notify. Part of validate().
#pragma once

#include <string>
#include <vector>

#include "common/job/manifest.h"

namespace dtrain::job {

void check_policy(const JobSpec& spec, std::vector<FileError>& errors);
void check_span(const std::string& path, Duration span,
                std::vector<FileError>& errors);  // 0 to kLongestDuration, whole ms
void check_signal(const std::string& path, std::int32_t signal, std::vector<FileError>& errors);

}  // namespace dtrain::job
