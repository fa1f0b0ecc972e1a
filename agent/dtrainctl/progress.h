// What `run` shows while a job runs: a block at the bottom of a terminal, or one line for each change.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "agent/dtrainctl/render.h"
#include "common/wire/control.h"

namespace dtrain::ctl {

inline constexpr std::size_t kBlockTasks = 12;  // tasks shown one by one in the block; further ones are counted

bool is_final_state(std::string_view job_state);

// The block's lines, none wider than the layout: the job, what it restored, what it waits for, its tasks' progress bars, then the tasks
// with their STATUS.
std::vector<std::string> progress_block(const wire::JobUpdate& update, const Layout& layout, const std::vector<std::string>& bars = {});

// Lists what changed since the previous update: job state, generation and what it restored, restarts, task states, STATUS lines.
class PlainProgress {
 public:
  std::vector<std::string> changes(const wire::JobUpdate& update);

 private:
  struct Seen {
    std::string state, status, reason;
    std::uint32_t attempt = 0;
  };
  std::string state_;
  std::uint32_t generation_ = 0, restarts_ = 0;
  std::map<std::string, Seen> tasks_;
};

// A terminal whose bottom shows a block that is redrawn while text scrolls above it.
class LiveScreen {
 public:
  explicit LiveScreen(std::ostream& out) : out_(out) {}
  // Whole lines, each ending in a newline.
  void print_above(std::string_view text);
  void draw(std::vector<std::string> block, std::string question = "");
  void line_typed() { ++typed_; }  // the answer's newline moved the cursor down by a line
  void settle();                   // leaves the block where it is; further output goes below it

 private:
  void erase();
  void paint();
  std::ostream& out_;
  std::vector<std::string> block_;
  std::string question_;
  std::size_t drawn_ = 0, typed_ = 0;
};

}  // namespace dtrain::ctl
