#include "common/transfer/tf_checkpoint_state.h"

#include <cstdint>
#include <cstdio>
#include <optional>

namespace dtrain::transfer {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '+' || c == '-';
}
int octal_digit(char c) { return c >= '0' && c <= '7' ? c - '0' : -1; }
int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The part of protobuf's text format that one flat message needs.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool at_end() {
    skip();
    return text_.empty();
  }
  bool accept(char c) {
    skip();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  std::string word() {
    skip();
    std::size_t n = 0;
    while (n < text_.size() && is_word(text_[n])) ++n;
    std::string result(text_.substr(0, n));
    text_.remove_prefix(n);
    return result;
  }
  bool at_quote() {
    skip();
    return !text_.empty() && (text_.front() == '"' || text_.front() == '\'');
  }
  // Adjacent literals are one string.
  std::optional<std::string> quoted() {
    std::string value;
    while (at_quote())
      if (!literal(value)) return std::nullopt;
    return value;
  }

 private:
  void skip() {
    for (;;) {
      while (!text_.empty() && is_space(text_.front())) text_.remove_prefix(1);
      if (text_.empty() || text_.front() != '#') return;
      text_.remove_prefix(std::min(text_.find('\n'), text_.size()));
    }
  }
  bool literal(std::string& value) {
    const char quote = text_.front();
    text_.remove_prefix(1);
    while (!text_.empty()) {
      const char c = text_.front();
      text_.remove_prefix(1);
      if (c == quote) return true;
      if (c == '\n') return false;
      if (c != '\\') value.push_back(c);
      else if (!escape(value)) return false;
    }
    return false;
  }
  bool number_escape(std::string& value, int (*digit)(char), int base, int most_digits) {
    int number = 0, count = 0;
    for (; count < most_digits && !text_.empty() && digit(text_.front()) >= 0; ++count, text_.remove_prefix(1))
      number = number * base + digit(text_.front());
    if (count == 0 || number > 0xff) return false;
    value.push_back(static_cast<char>(number));
    return true;
  }
  bool escape(std::string& value) {
    if (text_.empty()) return false;
    const char c = text_.front();
    if (octal_digit(c) >= 0) return number_escape(value, octal_digit, 8, 3);
    text_.remove_prefix(1);
    if (c == 'x' || c == 'X') return number_escape(value, hex_digit, 16, 2);
    constexpr std::string_view kNames = "abfnrtv\\'\"?", kValues = "\a\b\f\n\r\t\v\\'\"?";
    const auto at = kNames.find(c);
    if (at == std::string_view::npos) return false;
    value.push_back(kValues[at]);
    return true;
  }

  std::string_view text_;
};

std::string quote(std::string_view value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) {
      char text[8];
      std::snprintf(text, sizeof text, "\\%03o", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += text;
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

Result<CheckpointState> parse_checkpoint_state(std::string_view text) {
  const auto damaged = [](std::string cause) { return fail(ErrorCode::damaged, std::move(cause)); };
  if (text.size() > kCheckpointStateBytes) return damaged("it is longer than " + std::to_string(kCheckpointStateBytes) + " bytes");
  CheckpointState state;
  Scanner scanner(text);
  while (!scanner.at_end()) {
    const std::string key = scanner.word();
    if (key.empty() || !scanner.accept(':')) return damaged("it is not a list of \"name: value\"");
    const bool is_text = scanner.at_quote();
    const auto value = is_text ? scanner.quoted() : std::optional(scanner.word());
    if (!value || (!is_text && value->empty())) return damaged("the value of " + key + " is malformed");
    if (!scanner.accept(',')) scanner.accept(';');
    const bool wants_text = key == "model_checkpoint_path" || key == "all_model_checkpoint_paths";
    if (wants_text != is_text) {
      if (wants_text) return damaged("the value of " + key + " is not text");
      continue;
    }
    if (state.all_model_checkpoint_paths.size() == kCheckpointStatePaths ||
        state.all_model_checkpoint_timestamps.size() == kCheckpointStatePaths)
      return damaged("it names more than " + std::to_string(kCheckpointStatePaths) + " checkpoints");
    if (key == "model_checkpoint_path") state.model_checkpoint_path = *value;
    else if (key == "all_model_checkpoint_paths") state.all_model_checkpoint_paths.push_back(*value);
    else if (key == "all_model_checkpoint_timestamps") state.all_model_checkpoint_timestamps.push_back(*value);
    else if (key == "last_preserved_timestamp") state.last_preserved_timestamp = *value;
  }
  return state;
}

std::string render_checkpoint_state(const CheckpointState& state) {
  std::string out = "model_checkpoint_path: " + quote(state.model_checkpoint_path) + "\n";
  for (const auto& path : state.all_model_checkpoint_paths) out += "all_model_checkpoint_paths: " + quote(path) + "\n";
  for (const auto& timestamp : state.all_model_checkpoint_timestamps) out += "all_model_checkpoint_timestamps: " + timestamp + "\n";
  if (!state.last_preserved_timestamp.empty()) out += "last_preserved_timestamp: " + state.last_preserved_timestamp + "\n";
  return out;
}

std::string resolve_state_path(std::string_view directory, std::string_view mentioned) {
  const std::string joined = mentioned.starts_with('/') ? std::string(mentioned) : std::string(directory) + "/" + std::string(mentioned);
  std::string out;
  for (std::size_t start = 0; start < joined.size();) {
    const std::size_t end = std::min(joined.find('/', start), joined.size());
    const auto component = std::string_view(joined).substr(start, end - start);
    if (!component.empty() && component != ".") out.append("/").append(component);
    start = end + 1;
  }
  return out;
}

bool drop_from_state(CheckpointState& state, std::string_view directory, std::string_view removed, std::string_view successor) {
  bool changed = false;
  auto& paths = state.all_model_checkpoint_paths;
  auto& timestamps = state.all_model_checkpoint_timestamps;
  if (timestamps.size() != paths.size()) timestamps.clear();
  const std::string gone = resolve_state_path(directory, removed);
  for (std::size_t i = paths.size(); i-- > 0;) {
    if (resolve_state_path(directory, paths[i]) != gone) continue;
    paths.erase(paths.begin() + static_cast<std::ptrdiff_t>(i));
    if (!timestamps.empty()) timestamps.erase(timestamps.begin() + static_cast<std::ptrdiff_t>(i));
    changed = true;
  }
  if (resolve_state_path(directory, state.model_checkpoint_path) != gone) return changed;
  std::string_view written = successor;
  const std::string inside = resolve_state_path(directory, "") + "/";
  if (!state.model_checkpoint_path.starts_with('/') && written.starts_with(inside)) written.remove_prefix(inside.size());
  state.model_checkpoint_path = written;
  return true;
}

}  // namespace dtrain::transfer
