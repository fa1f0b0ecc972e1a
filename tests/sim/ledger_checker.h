// A checker of what the log decides: looks at the newest ledger after each step that made it newer. One step may
// apply several entries.
#pragma once

#include "tests/sim/checker.h"

namespace dtrain::sim {

class LedgerChecker : public Checker {
 public:
  using Checker::Checker;
  void stepped(std::size_t host) final {
    const HostView& view = world_.host_view(host);
    const std::uint64_t index = view.ledger_index();
    if (index <= index_) return;
    look(view.node()->ledger(), index_);
    index_ = index;
  }
  void undone(std::uint64_t last) final {
    if (index_ <= last) return;
    index_ = last;
    forget();
  }

 protected:
  // `before`: the index that was looked at last; 0: none.
  virtual void look(const cluster::Ledger& ledger, std::uint64_t before) = 0;
  virtual void forget() {}  // what was seen last is void

 private:
  std::uint64_t index_ = 0;
};

}  // namespace dtrain::sim
