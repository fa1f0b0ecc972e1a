// Checks and quotes text that came from a user.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::job {

inline constexpr std::size_t kQuotedBytes = 60;  // of a user's text in a message; the rest is "..."

bool is_utf8(std::string_view text);           // shortest forms only, no surrogates, at most U+10FFFF
bool is_job_name(std::string_view text);       // [a-z0-9]([-a-z0-9]*[a-z0-9])?, at most limits::kNameBytes
bool is_role_name(std::string_view text);      // [a-z][a-z0-9]*, at most limits::kRoleNameBytes
bool is_variable_name(std::string_view text);  // [A-Za-z_][A-Za-z0-9_.-]*: what Kubernetes takes as the name of a variable
bool is_label_name(std::string_view text);     // [A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?, at most kLabelBytes

inline constexpr std::size_t kVariableNameBytes = 256;
inline constexpr std::size_t kLabelBytes = 253;  // of a label's name or value

// `text` for a message: in backticks, control characters and broken UTF-8 as \xNN, cut to kQuotedBytes.
std::string in_quotes(std::string_view text);

// "a", "a or b", "a, b or c"
std::string one_of(const std::vector<std::string>& words, std::string_view last = "or");

}  // namespace dtrain::job
