// One Membership among peers that the test plays: what it hears, what it says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/gossip/member_table.h"
#include "common/gossip/membership.h"

namespace dtrain::gossip {

class SilentLog : public Log {
 public:
  using Log::write;
  void write(LogLevel, std::string_view, std::span<const LogField>) override {}
};

class LoneMember {
 public:
  static constexpr std::uint64_t kInc = 5;  // of the peers, to begin with
  static MemberId id(std::uint64_t i) { return {i * 0x9e3779b97f4a7c15ULL + 1, i}; }
  static constexpr std::uint64_t kSelf = 1000;

  // Peers 0 .. n-1 are known and alive.
  explicit LoneMember(std::size_t peers, std::string broken_rule = {}, MembershipOptions options = {}, std::uint64_t seed = 1)
      : membership_(self(), broken(options, broken_rule), Rng(seed), log_) {
    std::vector<wire::Row> rows;
    for (std::size_t i = 0; i < peers; ++i) rows.push_back({wire::MemberState::alive, kInc, identity(i), {}});
    membership_.preload(rows);
    give(Tick{});
    for (std::size_t i = 0; i < peers; ++i) give(LinkUp{identity(i)->address});
    out.clear();
  }

  static wire::IdentityPtr identity(std::uint64_t i, std::uint64_t life = 1, const std::string& boot = "boot") {
    return std::make_shared<const wire::Identity>(
        wire::Identity{id(i),
                       "n" + std::to_string(i),
                       {"10.0.0." + std::to_string(i % 250), static_cast<std::uint16_t>(7400 + i / 250)},
                       boot,
                       life,
                       1,
                       1,
                       ""});
  }
  static Self self() { return {*identity(kSelf), "lab", {}, true, {7, 7}, {}, {}}; }

  Membership& operator*() { return membership_; }
  Membership* operator->() { return &membership_; }

  void give(const Input& input) { membership_.step(now, input, out); }
  void hear(const std::vector<wire::Rumour>& rumours, std::uint64_t from = 0) { receive(wire::Gossip{rumours}, from); }
  void receive(wire::GossipBody body, std::uint64_t from = 0, std::uint64_t incarnation = kInc) {
    wire::PeerHeader header;
    header.cluster = {7, 7};
    header.sender = id(from);
    header.incarnation = incarnation;
    give(Received{header, std::move(body), from + 1, "10.0.0.9"});
  }
  // Ticks at every deadline until then. `each` sees what was put out at each step; answers may be given
  // there.
  template <class Each>
  void run(Duration duration, const Each& each) {
    const Instant end = now + duration;
    while (membership_.deadline() <= end) {
      now = std::max(now, membership_.deadline());
      give(Tick{});
      each();
    }
    now = end;
  }
  void run(Duration duration) {
    run(duration, [] {});
  }
  // All peers but these answer pings at once.
  void run_answering(Duration duration, const std::vector<std::uint64_t>& silent = {}) {
    run(duration, [&] { answer_pings(silent); });
  }
  void answer_pings(const std::vector<std::uint64_t>& silent) {
    for (; answered_ < out.sends.size(); ++answered_) {
      const Send sent = out.sends[answered_];
      const std::uint64_t to = sent.member.low;
      if (std::ranges::find(silent, to) != silent.end()) continue;
      if (const auto* ping = std::get_if<wire::Ping>(&sent.body)) receive(pong_to(*ping, incarnation_of(to)), to, incarnation_of(to));
      else if (const auto* request = std::get_if<wire::PingRequest>(&sent.body))
        receive(wire::Nack{request->sequence}, to, incarnation_of(to));
    }
  }
  std::uint64_t incarnation_of(std::uint64_t peer) {
    const auto view = membership_.find(id(peer));
    return view ? view->incarnation : kInc;
  }
  static wire::Pong pong_to(const wire::Ping& ping, std::uint64_t incarnation = kInc) {
    wire::Pong pong;
    pong.sequence = ping.sequence;
    pong.target = ping.target;
    pong.incarnation = incarnation;
    pong.boot_hash = boot_hash(*identity(ping.target.low));
    pong.sent = ping.sent;
    return pong;
  }

  static wire::Rumour alive(std::uint64_t i, std::uint64_t incarnation, std::uint64_t life = 1, const std::string& boot = "boot") {
    return {wire::RumourKind::alive, id(i), incarnation, {}, identity(i, life, boot), nullptr, {}};
  }
  static wire::Rumour claim(wire::RumourKind kind, std::uint64_t i, std::uint64_t incarnation, std::uint64_t from = 1) {
    return {kind, id(i), incarnation, id(from), nullptr, nullptr, {}};
  }
  static wire::Rumour suspect(std::uint64_t i, std::uint64_t incarnation = kInc, std::uint64_t from = 1) {
    return claim(wire::RumourKind::suspect, i, incarnation, from);
  }
  static wire::Rumour dead(std::uint64_t i, std::uint64_t incarnation = kInc, std::uint64_t from = 1) {
    return claim(wire::RumourKind::dead, i, incarnation, from);
  }

  std::optional<wire::MemberState> state(std::uint64_t i) {
    const auto view = membership_.find(id(i));
    if (!view) return std::nullopt;
    return view->state;
  }
  std::size_t count(ChangeKind kind, std::optional<std::uint64_t> about = std::nullopt) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        out.changes, [&](const Change& change) { return change.kind == kind && (!about || change.id == id(*about)); }));
  }
  template <class Body>
  std::vector<std::pair<MemberId, Body>> sent() const {
    std::vector<std::pair<MemberId, Body>> found;
    for (const Send& send : out.sends)
      if (const auto* body = std::get_if<Body>(&send.body)) found.emplace_back(send.member, *body);
    return found;
  }
  void clear() { out.clear(), answered_ = 0; }

  Instant now{1000s};
  Outputs out;

 private:
  static MembershipOptions broken(MembershipOptions options, const std::string& rule) {
    options.broken_rule = rule;
    return options;
  }
  SilentLog log_;
  Membership membership_;
  std::size_t answered_ = 0;
};

}  // namespace dtrain::gossip
