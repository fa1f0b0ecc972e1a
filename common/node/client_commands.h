// Requests of clients that have become commands of the log: each is answered once its command is applied, or cannot be.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/node/callers.h"
#include "common/node/context.h"
#include "common/node/part.h"
#include "common/node/proposals.h"

namespace dtrain::node {

class ClientCommands final : public Part {
 public:
  ClientCommands(Context& context, Callers& callers, Proposals& proposals)
      : Part(Runs::always), c_(context), callers_(callers), proposals_(proposals) {}

  // Returns false if no further command can be taken now; an error was sent.
  bool room(const Request& e);
  // See Proposals::add.
  template <class T>
  MemberId add(cluster::CommandType type, const T& command, std::optional<std::uint32_t> needs = {}) {
    return proposals_.add(type, command, needs);
  }
  // Remembers which client to answer when the command of that id is applied. `type`: the verb, whose row must say that it becomes an entry.
  void pend(const MemberId& id, const Request& e, wire::MessageType type, const Caller& caller, std::vector<std::string> warnings = {});
  // To be called when a command was applied: answers its client.
  void applied(const cluster::Applied& result);
  // To be called when a command was not applied in time.
  void given_up(const MemberId& id);
  // To be called when nothing will be committed any more.
  void storage_failed(const Error& error);
  void closed(ConnectionId connection) override;

 private:
  struct Pending {
    ConnectionId connection = 0;
    std::uint64_t request = 0;
    wire::MessageType type = wire::MessageType::none;
    Caller caller;
    std::vector<std::string> warnings;
  };

  Context& c_;
  Callers& callers_;
  Proposals& proposals_;
  std::map<MemberId, Pending> pending_;  // by the command's id
};

}  // namespace dtrain::node
