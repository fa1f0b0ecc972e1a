// The order of every formation struct's fields on the wire, and the checks of a decoded one. Append only: docs/protocol.md.
#pragma once

#include <algorithm>

#include "common/wire/formation.h"
#include "common/wire/positional.h"

namespace dtrain::wire {

using positional::Ref;

template <class V>
void fields(V& v, Ref<V, Founder> x) {
  v.number("seat", x.seat);
  v.id("id", x.id);
}
inline const char* defect(Founder& x) { return x.seat >= kMostFounders || x.id.none() ? "a founder out of range" : nullptr; }

template <class V>
void fields(V& v, Ref<V, Founding> x) {
  v.id("cluster", x.cluster);
  v.id("proposer", x.proposer);
  v.list("members", x.members, kMostFounders);
}

template <class V>
void fields(V& v, Ref<V, FormationReport> x) {
  v.prose("founders", x.founders, kFoundersBytes);
  v.number("seat", x.seat);
  v.flag("asks", x.asks);
  v.number("round", x.round);
  v.number("echo", x.echo);
  v.nested("promise", x.promise);
  v.id("cluster", x.cluster);
  v.flag("established", x.established);
  v.flag("doubts", x.doubts);
  v.list("without", x.without, kMostFounders);
  v.list("withdrawn", x.withdrawn, kMostWithdrawn);
}
inline const char* defect(FormationReport& x) {
  if (x.seat >= kMostFounders) return "a seat out of range";
  return std::adjacent_find(x.without.begin(), x.without.end(), std::greater_equal<>()) != x.without.end() ? "seats out of order" : nullptr;
}

}  // namespace dtrain::wire
