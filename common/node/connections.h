// The numbers of an agent's connections, and of those that its node itself opens also the part that gets what they bring.
//
// One counter numbers them all: the agent takes a number for each client that it lets in (Node::next_connection()), and this node for the
// streams that it opens (OpenRelay::part), for those of other agents that it accepts, and for its own connections. Who is at the other end
// of a connection is never seen from its number: clients, here or at another agent, are in Callers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "common/node/event.h"

namespace dtrain::node {

class Part;
class Connections;

// A connection of this node's own, for what it asks other hosts: open as long as this object is there, so that none is left over.
class OwnConnection {
 public:
  OwnConnection() = default;  // none
  OwnConnection(OwnConnection&& other) noexcept { swap(other); }
  OwnConnection& operator=(OwnConnection&& other) noexcept {
    OwnConnection(std::move(other)).swap(*this);
    return *this;
  }
  ~OwnConnection();
  operator ConnectionId() const { return number_; }  // 0: none

 private:
  friend class Connections;
  OwnConnection(Connections& all, ConnectionId number) : all_(&all), number_(number) {}
  void swap(OwnConnection& other) {
    std::swap(all_, other.all_);
    std::swap(number_, other.number_);
  }

  Connections* all_ = nullptr;
  ConnectionId number_ = 0;
};

class Connections {
 public:
  // Numbers of earlier lives of the agent are not used again.
  void start(std::uint64_t life) { last_ = life << 32; }
  ConnectionId next() { return ++last_; }
  // What the connection brings is given to that part (RelayAnswered, BlobWritten, CheckpointWritten).
  OwnConnection open(Part& sink) {
    sinks_[++last_] = &sink;
    return {*this, last_};
  }
  // nullptr: the connection is not this node's own, or closed.
  Part* sink_of(ConnectionId connection) const {
    const auto found = sinks_.find(connection);
    return found == sinks_.end() ? nullptr : found->second;
  }
  std::size_t own() const { return sinks_.size(); }

 private:
  friend class OwnConnection;
  ConnectionId last_ = 0;
  std::map<ConnectionId, Part*> sinks_;
};

inline OwnConnection::~OwnConnection() {
  if (all_ != nullptr) all_->sinks_.erase(number_);
}

}  // namespace dtrain::node
