#include "agent/dtrainctl/render.h"

#include <algorithm>
#include <numeric>

#include "agent/dtrainctl/words.h"
#include "common/base/check.h"

namespace dtrain::ctl {
namespace {

constexpr std::size_t kGap = 2;  // blanks between two columns

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

std::size_t total_width(const std::vector<std::size_t>& shown, const std::vector<std::size_t>& widths) {
  std::size_t total = 0;
  for (std::size_t column : shown) total += widths[column] + kGap;
  return total == 0 ? 0 : total - kGap;
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::size_t have = text_width(text);
  const std::string blanks(width > have ? width - have : 0, ' ');
  return right ? blanks + text : text + blanks;
}

}  // namespace

std::size_t text_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string cut(std::string_view text, std::size_t width) {
  if (text_width(text) <= width) return std::string(text);
  if (width == 0) return "";
  std::size_t end = 0, characters = 0;
  for (; end < text.size(); ++end)
    if (starts_character(text[end]) && ++characters == width) break;
  return std::string(text.substr(0, end)) + "…";
}

std::string colored_state(const std::string& text, std::string_view state, bool color) {
  if (!color) return text;
  const auto one_of = [state](std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), state) != words.end();
  };
  const char* code = "33";
  if (one_of({"Running", "Succeeded", "alive", "verified", "complete"})) code = "32";
  if (one_of({"Failed", "Lost", "dead", "down", "damaged", "quarantined", "gone"})) code = "31";
  if (one_of({"Cancelled", "Suspended", "Waiting", "left", "stale"})) code = "2";
  return "\033[" + std::string(code) + "m" + text + "\033[0m";
}

void Table::add(std::vector<std::string> cells) {
  CHECK(cells.size() == columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::render(const Layout& layout) const {
  std::vector<std::size_t> widths(columns_.size()), shown;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    widths[c] = text_width(columns_[c].title);
    for (const auto& row : rows_) widths[c] = std::max(widths[c], text_width(row[c]));
    if (!columns_[c].wide_only || layout.wide) shown.push_back(c);
  }
  if (layout.columns != 0) {
    const auto excess = [&] {
      const std::size_t total = total_width(shown, widths);
      return total > layout.columns ? total - layout.columns : 0;
    };
    const auto squeeze = [&] {
      for (std::size_t c : shown) {
        if (!columns_[c].elastic) continue;
        const std::size_t least = std::max(kElasticWidth, text_width(columns_[c].title));
        if (widths[c] > least) widths[c] -= std::min(excess(), widths[c] - least);
      }
    };
    const std::vector<std::size_t> natural = widths;
    squeeze();
    while (excess() > 0) {
      const auto victim =
          std::max_element(shown.begin(), shown.end(), [&](std::size_t a, std::size_t b) { return columns_[a].drop < columns_[b].drop; });
      if (victim == shown.end() || columns_[*victim].drop == 0) break;
      shown.erase(victim);
      widths = natural;  // the elastic columns get the room of the removed column
      squeeze();
    }
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>* row) {
    std::string text;
    std::size_t used = 0;
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const std::size_t c = shown[i];
      std::size_t width = widths[c];
      if (i > 0) text.append(kGap, ' '), used += kGap;
      if (layout.columns != 0) {
        if (used >= layout.columns) break;
        width = std::min(width, layout.columns - used);
      }
      const std::string& cell = row != nullptr ? (*row)[c] : columns_[c].title;
      std::string piece = cut(cell, width);
      const bool is_last = i + 1 == shown.size();
      if (!is_last || columns_[c].right) piece = padded(piece, width, columns_[c].right);
      used += text_width(piece);
      text += row != nullptr && columns_[c].is_state ? colored_state(piece, cell, layout.color) : piece;
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    out += text + "\n";
  };
  line(nullptr);
  for (const auto& row : rows_) line(&row);
  return out;
}

}  // namespace dtrain::ctl
