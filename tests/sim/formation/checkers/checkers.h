// The makers of all checkers of world formation.
#pragma once

#include "tests/sim/formation/checker.h"

namespace dtrain::sim::formation {

using Maker = std::unique_ptr<Checker> (*)(WorldView&);

std::unique_ptr<Checker> never_two_clusters(WorldView& world);
std::unique_ptr<Checker> one_promise(WorldView& world);
std::unique_ptr<Checker> said_is_durable(WorldView& world);
std::unique_ptr<Checker> begins_with_all(WorldView& world);
std::unique_ptr<Checker> begun_is_kept(WorldView& world);
std::unique_ptr<Checker> converges(WorldView& world);

}  // namespace dtrain::sim::formation
