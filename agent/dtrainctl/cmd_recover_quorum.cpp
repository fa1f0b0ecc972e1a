// recover-quorum: an operator says that a majority of the voters is lost for good. The agent first says what that
// would mean; it is carried out only with --yes, or when the user agrees on a terminal.
#include <unistd.h>

#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "common/json/answers.h"

namespace dtrain::ctl {
namespace {

using wire::MessageType;

Outcome<wire::RecoveryView> ask(Session& session, bool go, bool force) {
  return session.ask<wire::RecoveryView>(MessageType::recover_quorum, wire::RecoverRequest{go, force}, MessageType::recovery);
}

// Reads a line from the terminal and checks that it begins with y.
bool says_yes(Session& session) {
  session.io.err << "Begin a new history on this node? (y/N) " << std::flush;
  char first = 0, next = 0;
  if (::read(session.io.in_fd, &first, 1) != 1) return false;
  for (next = first; next != '\n';)
    if (::read(session.io.in_fd, &next, 1) != 1) break;
  return first == 'y' || first == 'Y';
}

}  // namespace

int cmd_recover_quorum(Session& session, const RecoverOptions& options) {
  if (!options.yes) {
    const auto would = ask(session, false, options.force);
    if (!would) return session.report(would.error());
    if (session.structured()) session.show(json::of(*would), [] { return std::string(); });
    else session.io.err << recovery_warning(*would);
    if (!session.io.in_tty)
      return session.report(Error{ErrorCode::refused, "could not recover the quorum: it was not confirmed",
                                  "read the above; if it is what you want, give --yes"});
    if (!says_yes(session)) {
      session.note("nothing was done");
      return kRefused;
    }
  }
  const auto done = ask(session, true, options.force);
  if (!done) return session.report(done.error());
  session.show(json::of(*done), [&] {
    return done->node + ": history " + std::to_string(done->new_history) + " of the cluster begins behind entry " +
           std::to_string(done->index) + " (epoch " + std::to_string(done->epoch) +
           ")\nmembers that are up, or come back, drop their logs and follow it by themselves\nstart lost voters only when those that are "
           "up have followed (event council.followed), one after the other\n";
  });
  return kDone;
}

}  // namespace dtrain::ctl
