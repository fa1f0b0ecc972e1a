// submit, plan, and actions on a job: they are checked here and then become commands of the log.
#pragma once

#include <optional>
#include <string>

#include "common/node/callers.h"
#include "common/node/client_commands.h"
#include "common/node/coordinator.h"
#include "common/node/ledger_versions.h"
#include "common/node/package_requests.h"
#include "common/node/relays.h"

namespace dtrain::node {

class JobRequests {
 public:
  JobRequests(Context& context, Callers& callers, ClientCommands& commands, PackageRequests& packages, const Coordinator& coordinator,
              const LedgerVersions& versions, const Relays& relays)
      : c_(context),
        callers_(callers),
        commands_(commands),
        packages_(packages),
        coordinator_(coordinator),
        versions_(versions),
        relays_(relays) {}

  void submit(const Request& e, const wire::SubmitRequest& q, const Caller& caller);
  void plan(const Request& e, const wire::SubmitRequest& q, const Caller& caller);
  void action(const Request& e, const wire::ActionRequest& q, const Caller& caller);

 private:
  // Returns the job's description if this caller may submit it; nullopt: an error was sent.
  std::optional<job::JobSpec> checked_spec(const Request& e, const std::string& bytes, const Caller& caller);

  Context& c_;
  Callers& callers_;
  ClientCommands& commands_;
  PackageRequests& packages_;
  const Coordinator& coordinator_;
  const LedgerVersions& versions_;
  const Relays& relays_;
};

}  // namespace dtrain::node
