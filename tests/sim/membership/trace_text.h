// What --trace prints of inputs, changes and messages.
#pragma once

#include <string>

#include "common/gossip/membership.h"

namespace dtrain::sim::membership {

std::string text_of(const wire::GossipBody& body);
std::string text_of(const gossip::Input& input);
std::string text_of(const gossip::Change& change);

}  // namespace dtrain::sim::membership
