// dtrainctl: talks to the agent of this host.
#include <sys/ioctl.h>
#include <unistd.h>

#include <exception>
#include <iostream>

#include "agent/dtrainctl/cli.h"
#include "agent/dtrainctl/failure.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  dtrain::ctl::Io io{
      std::cout, std::cerr, STDIN_FILENO, ::isatty(STDIN_FILENO) == 1, ::isatty(STDOUT_FILENO) == 1, ::isatty(STDERR_FILENO) == 1, 0};
  winsize size{};
  if (io.out_tty && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) io.columns = size.ws_col;
  try {
    const int code = dtrain::ctl::run_program({argv + 1, argv + argc}, io);
    std::cout.flush();
    if (std::cout || code != dtrain::ctl::kDone) return code;
    std::cerr << "dtrainctl: could not write to stdout; see whether its disk is full\n";
  } catch (const std::exception& e) {  // out of memory, or a bug: the user never sees an abort
    std::cerr << "dtrainctl: could not go on: " << e.what() << "\n";
  }
  return dtrain::ctl::kJobFailed;
}
