// A checker of what the log decides: it looks at the newest ledger there is after each step that made it newer. One step may apply several
// entries.
#pragma once

#include "tests/sim/checker.h"

namespace dtrain::sim {

class LedgerChecker : public Checker {
 public:
  using Checker::Checker;
  void stepped(std::size_t host) final {
    const node::Node* node = world_.host_view(host).node();
    if (node == nullptr || node->ledger_index() <= index_) return;
    look(node->ledger(), index_);
    index_ = node->ledger_index();
  }

 protected:
  // `before`: the index that was looked at last; 0: none.
  virtual void look(const cluster::Ledger& ledger, std::uint64_t before) = 0;

 private:
  std::uint64_t index_ = 0;
};

}  // namespace dtrain::sim
