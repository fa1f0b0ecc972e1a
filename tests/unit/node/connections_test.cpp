// Numbers of connections, and a node's own connections: none outlives its handle.
#include "common/node/connections.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "common/node/part.h"

namespace dtrain::node {
namespace {

struct Asker final : Part {
  Asker() : Part(Runs::always) {}
};

TEST(Connections, WhatAConnectionBringsIsItsOpenersUntilItIsClosed) {
  Connections all;
  Asker one, other;
  std::optional<OwnConnection> first = all.open(one);
  const OwnConnection second = all.open(other);
  const ConnectionId number = *first;
  EXPECT_EQ(all.sink_of(number), &one);
  EXPECT_EQ(all.sink_of(second), &other);
  EXPECT_EQ(all.sink_of(all.next()), nullptr) << "a client's";
  first.reset();
  EXPECT_EQ(all.sink_of(number), nullptr);
  EXPECT_EQ(all.own(), 1u);
}

TEST(Connections, WhoeverHoldsItKeepsItAndOnlyOnce) {
  Connections all;
  Asker asker;
  OwnConnection held;
  EXPECT_EQ(held, 0u);
  held = all.open(asker);
  const ConnectionId before = held;
  OwnConnection moved = std::move(held);
  EXPECT_EQ(moved, before);
  held = all.open(asker);
  moved = std::move(held);  // closes what it had
  EXPECT_EQ(all.sink_of(before), nullptr);
  EXPECT_EQ(all.own(), 1u);
  moved = {};
  EXPECT_EQ(moved, 0u);
  EXPECT_EQ(all.own(), 0u);
  for (int i = 0; i < 1000; ++i) moved = all.open(asker);
  EXPECT_EQ(all.own(), 1u);
}

TEST(Connections, NoNumberIsUsedAgainInAnotherLife) {
  Connections all;
  all.start(1);
  ConnectionId last = 0;
  for (int i = 0; i < 1000; ++i) last = all.next();
  Connections later;
  later.start(2);
  EXPECT_GT(later.next(), last);
}

}  // namespace
}  // namespace dtrain::node
