#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"

namespace dtrain::ctl {

int cmd_nodes(Session& session, const NamedOptions& options) {
  if (options.watch) return watch_screen(session, [&](Session& s) { return cmd_nodes(s, {options.name, false}); });
  auto reply = session.ask_surely<wire::NodesReply>(wire::MessageType::query_nodes, wire::NodeName{options.name},
                                                    wire::MessageType::nodes);
  if (!reply) return session.report(reply.error());
  session.note_stale(reply->stale);
  session.show(json_of(reply->nodes), [&] { return nodes_table(reply->nodes, session.layout()); });
  return kDone;
}

int cmd_describe_node(Session& session, const NamedOptions& options) {
  auto reply = session.ask_surely<wire::NodesReply>(wire::MessageType::query_nodes, wire::NodeName{options.name},
                                                    wire::MessageType::nodes);
  if (!reply) return session.report(reply.error());
  if (reply->nodes.empty())
    return session.report(Failure(Error{ErrorCode::not_found, "could not find node " + options.name +
                                        ": there is none of that name", "dtrainctl nodes shows those there are"}));
  session.note_stale(reply->stale);
  const wire::NodeView& node = reply->nodes.front();
  session.show(json_of(node), [&] { return node_text(node, session.layout()); });
  return kDone;
}

}  // namespace dtrain::ctl
