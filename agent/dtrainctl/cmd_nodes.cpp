#include "agent/dtrainctl/commands.h"
#include "agent/dtrainctl/tables.h"
#include "common/json/answers.h"

namespace dtrain::ctl {

int cmd_nodes(Session& session, const NamedOptions& options) {
  if (options.watch) return watch_screen(session, [&](Session& s) { return cmd_nodes(s, {options.name, false}); });
  auto reply = session.ask_surely<wire::NodesReply>(wire::MessageType::query_nodes, wire::NodeName{options.name}, wire::MessageType::nodes);
  if (!reply) return session.report(reply.error());
  session.note_stale(reply->stale);
  session.show(json::of(reply->nodes), [&] { return nodes_table(reply->nodes, session.layout()); });
  return kDone;
}

namespace {

int show_node(Session& session, const std::string& name, const std::function<void(const wire::NodeView&)>& show) {
  auto reply = session.ask_surely<wire::NodesReply>(wire::MessageType::query_nodes, wire::NodeName{name}, wire::MessageType::nodes);
  if (!reply) return session.report(reply.error());
  if (reply->nodes.empty())
    return session.report(Failure(Error{ErrorCode::not_found, "could not find node " + name + ": there is none of that name",
                                        "dtrainctl nodes shows those there are"}));
  session.note_stale(reply->stale);
  show(reply->nodes.front());
  return kDone;
}

}  // namespace

int cmd_describe_node(Session& session, const NamedOptions& options) {
  return show_node(session, options.name,
                   [&](const wire::NodeView& node) { session.show(json::of(node), [&] { return node_text(node, session.layout()); }); });
}

int cmd_topology(Session& session, const NamedOptions& options) {
  return show_node(session, options.name, [&](const wire::NodeView& node) {
    const Json json{{"name", node.name},
                    {"topology", node.topology},
                    {"packages", node.packages},
                    {"numa_nodes", node.numa_nodes},
                    {"gpus", json::of(node.gpus.devices)}};
    session.show(json, [&] { return topology_text(node); });
  });
}

}  // namespace dtrain::ctl
