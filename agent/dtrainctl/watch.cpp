#include <sstream>
#include <thread>

#include "agent/dtrainctl/commands.h"

namespace dtrain::ctl {

int watch_screen(Session& session, const std::function<int(Session&)>& look) {
  std::string before;
  bool reachable = true;
  while (true) {
    std::ostringstream text, talk;
    Io buffered{text, talk, session.io.in_fd, false, session.io.out_tty, session.io.err_tty, session.io.columns};
    Session inner(buffered, session.globals);
    const int code = look(inner);
    if (code == kUnreachable && !before.empty()) {
      // Continues to watch if the agent restarts.
      if (reachable) session.note("the agent does not answer; trying again");
      reachable = false;
    } else if (code != kDone) {
      session.io.err << talk.str() << std::flush;
      return code;
    } else {
      reachable = true;
      if (text.str() != before || session.io.out_tty) {
        // Home, the text with the rest of each line cleared, then everything below: redraws without flicker.
        if (session.io.out_tty) {
          std::string screen = "\033[H";
          for (const char c : text.str()) screen += c == '\n' ? std::string("\033[K\n") : std::string(1, c);
          session.io.out << (before.empty() ? "\033[2J" : "") << screen << "\033[J";
        } else {
          session.io.out << text.str();
        }
        session.io.out.flush();
      }
      before = text.str();
    }
    if (!session.io.out) return kJobFailed;  // nobody reads the output any more
    std::this_thread::sleep_for(kWatchPause);
  }
}

}  // namespace dtrain::ctl
