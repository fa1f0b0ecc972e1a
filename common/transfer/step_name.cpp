#include "common/transfer/step_name.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

namespace dtrain::transfer {
namespace {

// The finest first: "epoch=3-step=1200" is step 1200.
constexpr std::array<std::string_view, 7> kStepWords{"step", "iteration", "iter", "checkpoint", "ckpt", "chkpt", "epoch"};
constexpr std::string_view kBetween = "-_=.";  // what may stand between the word and its number

// Of these one is in the name of a checkpoint that does not begin with its step.
constexpr std::array<std::string_view, 5> kCheckpointWords{"ckpt", "chkpt", "checkpoint", "model", "weights"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

std::optional<std::int64_t> leading_number(std::string_view text) {
  std::int64_t number = 0;
  if (text.empty() || !is_digit(text.front())) return std::nullopt;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc{}) return std::nullopt;
  return number;
}

std::string in_lower_case(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

}  // namespace

std::optional<std::int64_t> step_said_by(std::string_view name) {
  const std::string lower = in_lower_case(name);
  for (const std::string_view word : kStepWords) {
    for (auto at = lower.rfind(word); at != std::string::npos; at = at == 0 ? std::string::npos : lower.rfind(word, at - 1)) {
      if (at > 0 && is_letter(lower[at - 1])) continue;
      std::string_view after = std::string_view(lower).substr(at + word.size());
      if (!after.empty() && kBetween.find(after.front()) != std::string_view::npos) after.remove_prefix(1);
      if (const auto number = leading_number(after)) return number;
    }
  }
  return std::nullopt;
}

bool named_as_checkpoint(std::string_view name) {
  if (!step_said_by(name)) return false;
  const std::string lower = in_lower_case(name);
  return std::ranges::any_of(kStepWords, [&](std::string_view word) { return lower.starts_with(word); }) ||
         std::ranges::any_of(kCheckpointWords, [&](std::string_view word) { return lower.find(word) != lower.npos; });
}

std::int64_t step_of_name(std::string_view name) {
  if (const auto said = step_said_by(name)) return *said;
  const std::string_view last = name.substr(std::min(name.size(), name.find_last_of("-_") + 1));
  if (last.size() == name.size() || !std::ranges::all_of(last, is_digit)) return 0;
  return leading_number(last).value_or(0);
}

}  // namespace dtrain::transfer
