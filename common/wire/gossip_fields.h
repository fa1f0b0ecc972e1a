// The order of every gossip struct's fields on the wire, and the checks of a decoded one. Append only: docs/protocol.md.
#pragma once

#include <algorithm>

#include "common/base/limits.h"
#include "common/wire/gossip.h"
#include "common/wire/positional.h"

namespace dtrain::wire {

using positional::Ref;

inline constexpr std::size_t kBucketsPerMessage = 4096;  // of state sync; more: refused

template <class V>
void fields(V& v, Ref<V, Identity> x) {
  v.id("id", x.id);
  v.word("name", x.name, limits::kNameBytes);
  v.word("ip", x.address.ip, kIpBytes);
  v.number("port", x.address.port);
  v.word("boot_id", x.boot_id, kWordBytes);
  v.number("life", x.life);
  v.number("format_min", x.format_min);
  v.number("format_max", x.format_max);
  v.keep();  // formats default to 1, so that a 0 must be written, too
  v.word("key_print", x.key_print, kWordBytes);
}
inline const char* defect(Identity& x) {
  if (x.id.none()) return "an identity without an id";
  if (x.name.empty()) return "an identity without a name";
  return nullptr;
}

template <class V>
void fields(V& v, Ref<V, Fact> x) {
  v.choice("key", x.key);
  v.number("version", x.version);
  v.bytes("value", x.value, kFactBytes);
}
inline const char* defect(Fact& x) { return x.version == 0 || x.version > kMostFactVersion ? "a fact's version out of range" : nullptr; }

// An identity names its member, so the subject is left out beside it.
inline MemberId written_subject(const Rumour& x) { return x.identity && x.identity->id == x.subject ? MemberId{} : x.subject; }
template <class V>
void subject(V& v, const Rumour& x) {
  v.id("subject", written_subject(x));
}
inline void subject(positional::Get& v, Rumour& x) { v.id("subject", x.subject); }

template <class V>
void fields(V& v, Ref<V, Rumour> x) {
  v.choice("kind", x.kind);
  subject(v, x);
  v.number("incarnation", x.incarnation);
  v.id("from", x.from);
  v.shared("identity", x.identity);
  v.shared("fact", x.fact);
  v.prose("reason", x.reason, kProseBytes);
}
inline const char* defect(Rumour& x) {
  if (x.identity && x.subject.none()) x.subject = x.identity->id;
  if (x.subject.none()) return "a rumour about nobody";
  if (x.identity && x.identity->id != x.subject) return "a rumour with another's identity";
  if (x.kind == RumourKind::alive && !x.identity) return "an alive without an identity";
  if (x.kind == RumourKind::fact && !x.fact) return "a fact without a value";
  if (x.incarnation > kMostIncarnation) return "a rumour's incarnation out of range";
  return nullptr;
}

template <class V>
void fields(V& v, Ref<V, Row> x) {
  v.choice("state", x.state);
  v.number("incarnation", x.incarnation);
  v.shared("identity", x.identity);
  v.list("facts", x.facts, kFactKeys * 4);  // room for keys of newer versions, which are skipped
  v.number("gone_ms", x.gone_ms);
}
inline const char* defect(Row& x) {
  if (!x.identity) return "a row without an identity";
  if (x.incarnation > kMostIncarnation) return "a row's incarnation out of range";
  const auto by_key = [](const FactPtr& a, const FactPtr& b) { return a->key >= b->key; };
  if (std::adjacent_find(x.facts.begin(), x.facts.end(), by_key) != x.facts.end()) return "facts out of order";
  return nullptr;
}

template <class V>
void fields(V& v, Ref<V, RowSummary> x) {
  v.id("id", x.id);
  v.number("incarnation", x.incarnation);
  v.choice("state", x.state);
  v.number("facts_hash", x.facts_hash);
}
inline const char* defect(RowSummary& x) { return x.id.none() ? "a summary of nobody" : nullptr; }

template <class V>
void fields(V& v, Ref<V, Join> x) {
  v.word("cluster_name", x.cluster_name, limits::kNameBytes);
  v.nested("self", x.self);
}
inline const char* defect(Join& x) { return x.self.identity ? nullptr : "a join without an identity"; }

template <class V>
void fields(V& v, Ref<V, JoinReply> x) {
  v.prose("refused", x.refused, kRefusedBytes);
  v.id("cluster_id", x.cluster_id);
  v.number("accused", x.accused);
  v.word("observed_ip", x.observed_ip, kIpBytes);
  v.list("rows", x.rows, kRowsPerMessage);
}
inline const char* defect(JoinReply& x) { return x.accused > kMostIncarnation ? "the accused incarnation out of range" : nullptr; }

template <class V>
void fields(V& v, Ref<V, Ping> x) {
  v.number("sequence", x.sequence);
  v.id("target", x.target);
  v.number("sent", x.sent);
  v.list("rumours", x.rumours, kRumoursPerMessage);
  v.flag("out_of_turn", x.out_of_turn);
}
template <class V>
void fields(V& v, Ref<V, Pong> x) {
  v.number("sequence", x.sequence);
  v.id("target", x.target);
  v.number("incarnation", x.incarnation);
  v.number("boot_hash", x.boot_hash);
  v.number("sent", x.sent);
  v.word("observed_ip", x.observed_ip, kIpBytes);
  v.list("rumours", x.rumours, kRumoursPerMessage);
}
template <class V>
void fields(V& v, Ref<V, PingRequest> x) {
  v.number("sequence", x.sequence);
  v.shared("target", x.target);
  v.number("incarnation", x.incarnation);
  v.list("rumours", x.rumours, kRumoursPerMessage);
}
inline const char* defect(PingRequest& x) { return x.target ? nullptr : "a ping request without a target"; }

template <class V>
void fields(V& v, Ref<V, Nack> x) {
  v.number("sequence", x.sequence);
}

template <class V>
void fields(V& v, Ref<V, ProbeNow> x) {
  v.shared("subject", x.subject);
  v.number("incarnation", x.incarnation);
}
inline const char* defect(ProbeNow& x) { return x.subject ? nullptr : "a probe of nobody"; }

template <class V>
void fields(V& v, Ref<V, Gossip> x) {
  v.list("rumours", x.rumours, kRumoursPerMessage);
}

template <class V>
void fields(V& v, Ref<V, SyncRoot> x) {
  v.number("root", x.root);
  v.list("buckets", x.buckets, kBucketsPerMessage);
  v.flag("reply", x.reply);
}
template <class V>
void fields(V& v, Ref<V, SyncSummaries> x) {
  v.list("buckets", x.buckets, kBucketsPerMessage);
  v.list("rows", x.rows, kRowsPerMessage);
  v.flag("reply", x.reply);
}
template <class V>
void fields(V& v, Ref<V, SyncRows> x) {
  v.list("rows", x.rows, kRowsPerMessage);
  v.list("wanted", x.wanted, kRowsPerMessage);
}

}  // namespace dtrain::wire
