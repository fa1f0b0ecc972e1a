// Where dtrainctl reads and writes. The program uses the process's own streams; a test hands in its own.
#pragma once

#include <cstddef>
#include <ostream>

namespace dtrain::ctl {

struct Io {
  std::ostream& out;            // data
  std::ostream& err;            // talk
  int in_fd = 0;                // FILE "-", exec, the question at ^C
  bool in_tty = false, out_tty = false, err_tty = false;
  std::size_t columns = 0;      // width that tables must fit; 0: no limit (out is no terminal)
};

}  // namespace dtrain::ctl
