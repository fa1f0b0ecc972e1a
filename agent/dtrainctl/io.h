// The streams that dtrainctl reads and writes: the process's own, or a test's.
#pragma once

#include <cstddef>
#include <ostream>

namespace dtrain::ctl {

struct Io {
  std::ostream& out;  // results
  std::ostream& err;  // messages to the user
  int in_fd = 0;      // for FILE "-", exec, and the question at ^C
  bool in_tty = false, out_tty = false, err_tty = false;
  std::size_t columns = 0;  // width that tables must fit; 0: no limit (out is no terminal)
};

}  // namespace dtrain::ctl
