// Inputs and messages of world council in words, for --trace.
#pragma once

#include <string>

#include "common/raft/raft.h"

namespace dtrain::sim::council {

std::string short_text(const MemberId& id);
std::string text_of(const wire::RaftMessage& message);
std::string text_of(const raft::Input& input);
std::string text_of(const raft::Persist& persist);
std::string text_of(const raft::Configuration& configuration);

}  // namespace dtrain::sim::council
