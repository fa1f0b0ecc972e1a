// Tables that fit a terminal.
//
// A table wider than the terminal is reduced in this order: elastic columns are cut with an ellipsis, down to
// kElasticWidth; then columns are left out, the one with the largest `drop` first; then lines are cut at the edge.
// Without a terminal nothing is cut, because scripts read whole values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::ctl {

inline constexpr std::size_t kElasticWidth = 12;  // characters that an elastic column keeps

struct Column {
  std::string title;
  unsigned drop = 0;       // 0: never left out
  bool elastic = false;    // long text: reason, status, message
  bool right = false;      // numbers
  bool is_state = false;   // coloured by its value
  bool wide_only = false;  // shown with -o wide
};

struct Layout {
  std::size_t columns = 0;  // 0: no limit
  bool color = false;
  bool wide = false;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Adds a row: one cell for each column, including wide ones; cells are made printable here.
  void add(std::vector<std::string> cells);
  // Each line ends in a newline. The header is there even without rows.
  std::string render(const Layout& layout) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Characters (code points), which is what a column counts.
std::size_t text_width(std::string_view text);
// At most `width` characters, the last one an ellipsis if something was cut.
std::string cut(std::string_view text, std::size_t width);
// A job or task state in its colour (green: good, yellow: in progress, red: bad), or unchanged without colours.
std::string colored_state(const std::string& text, std::string_view state, bool color);

}  // namespace dtrain::ctl
