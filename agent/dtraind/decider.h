// The interface between the daemon and Node: the daemon performs what a Decider decides. Tests use a stand-in.
#pragma once

#include <string>
#include <vector>

#include "common/node/node.h"

namespace dtrain::daemon {

class Decider {
 public:
  virtual ~Decider() = default;
  virtual void step(Now now, const node::Event& event, std::vector<node::Effect>& out) = 0;
  virtual Instant deadline() const = 0;
  virtual std::string status_line() const = 0;  // for people, once Node has started
  virtual bool among_others() const = 0;        // the cluster has other hosts
  virtual node::ConnectionId next_connection() = 0;
  virtual bool may_have_package(node::ConnectionId connection, const std::string& digest) const = 0;
};

class NodeDecider : public Decider {
 public:
  NodeDecider(node::NodeOptions options, Rng rng, Log& log) : node_(std::move(options), rng, log) {}
  void step(Now now, const node::Event& event, std::vector<node::Effect>& out) override { node_.step(now, event, out); }
  Instant deadline() const override { return node_.deadline(); }
  std::string status_line() const override { return node_.status_line(); }
  bool among_others() const override { return node_.among_others(); }
  node::ConnectionId next_connection() override { return node_.next_connection(); }
  bool may_have_package(node::ConnectionId connection, const std::string& digest) const override {
    return node_.may_have_package(connection, digest);
  }

 private:
  node::Node node_;
};

}  // namespace dtrain::daemon
