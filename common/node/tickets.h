// Numbers of the effects that are answered by one event, and the part that each answer belongs to. Never reused within one life of the
// agent; 0 is no ticket. Bounded by the effects that are under way.
#pragma once

#include <cstdint>
#include <map>

namespace dtrain::node {

class Part;

class Tickets {
 public:
  // nullptr: no part of the list waits for the answer.
  std::uint64_t give(Part* owner) {
    ++last_;
    if (owner != nullptr) owners_[last_] = owner;
    return last_;
  }
  // Returns who waits for the answer, which is yet to come; nullptr: nobody.
  Part* owner(std::uint64_t ticket) const {
    const auto found = owners_.find(ticket);
    return found == owners_.end() ? nullptr : found->second;
  }
  // Returns whose answer has come, once; nullptr: nobody's.
  Part* take(std::uint64_t ticket) {
    const auto found = owners_.find(ticket);
    if (found == owners_.end()) return nullptr;
    Part* owner = found->second;
    owners_.erase(found);
    return owner;
  }

 private:
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Part*> owners_;
};

}  // namespace dtrain::node
