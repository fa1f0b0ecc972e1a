// Tables that fit a terminal.
//
// A table wider than the terminal gives way in this order: the elastic columns are cut with an ellipsis, down to
// kElasticWidth; then columns are left out, the one with the largest `drop` first; the rest is cut at the edge.
// Without a terminal nothing is cut: a script reads whole values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::ctl {

inline constexpr std::size_t kElasticWidth = 12;   // characters an elastic column keeps at least

struct Column {
  std::string title;
  unsigned drop = 0;       // 0: never left out
  bool elastic = false;    // long text: reason, status, message
  bool right = false;      // numbers
  bool is_state = false;   // coloured by what it says
  bool wide_only = false;  // shown with -o wide
};

struct Layout {
  std::size_t columns = 0;   // 0: no limit
  bool color = false;
  bool wide = false;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // One cell per column, wide ones included; made printable here.
  void add(std::vector<std::string> cells);
  // Each line ends in a newline. The header is there also when no row is.
  std::string render(const Layout& layout) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Characters (code points), which is what a column counts.
std::size_t text_width(std::string_view text);
// At most `width` characters, the last one an ellipsis when something was cut.
std::string cut(std::string_view text, std::size_t width);
// A job or task state in its colour (green: well, yellow: on its way, red: bad), or as it is without colours.
std::string colored_state(const std::string& text, std::string_view state, bool color);

}  // namespace dtrain::ctl
