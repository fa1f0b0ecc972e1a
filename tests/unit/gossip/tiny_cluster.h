// A few Memberships on a tiny network in virtual time, for tests that tell a story. Every message takes a
// millisecond and arrives. Faults are set by hand; the simulator's world does the rest at random.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/gossip/membership.h"

namespace dtrain::gossip {

class QuietLog : public Log {
 public:
  void write(LogLevel, std::string_view event, std::span<const LogField> fields) override {
    std::string line(event);
    for (const LogField& field : fields) line += " " + std::string(field.key) + "=" + field.value;
    lines.push_back(line);
  }
  std::vector<std::string> lines;
};

class TinyCluster {
 public:
  struct Seen {
    Instant at{};
    std::size_t by = 0;  // whose change it is
    Change change;
  };
  enum class Process { never, runs, stopped, gone };

  explicit TinyCluster(MembershipOptions options = {}) : options_(std::move(options)) {}

  static MemberId id_of(std::size_t i) { return {0x1000 + i * 0x9e3779b97f4a7c15ULL, i + 1}; }
  static std::string name_of(std::size_t i) { return "n" + std::to_string(i); }
  static wire::Endpoint address_of(std::size_t i) { return {"10.0.0." + std::to_string(i + 1), 7400}; }
  wire::Identity identity_of(std::size_t i, std::uint64_t life = 1) const {
    return {id_of(i), name_of(i), address_of(i), "boot-" + std::to_string(i), life, 1, 1, ""};
  }

  // Node 0 founds; the others join it.
  void start(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) launch(i, self_of(i));
  }
  Self self_of(std::size_t i, std::uint64_t life = 1) const {
    Self self{identity_of(i, life), "lab", {}, i == 0, {7, 7}, {}, {}};
    if (i != 0) self.seeds = {"seed"};
    self.facts = {{wire::FactKey::resources, 0, "facts of " + name_of(i)}};
    return self;
  }
  void launch(std::size_t i, Self self, std::optional<MembershipOptions> options = std::nullopt) {
    if (nodes_.size() <= i) nodes_.resize(i + 1);
    Node& node = nodes_[i];
    node.address = self.identity.address;
    node.membership = std::make_unique<Membership>(std::move(self), options.value_or(options_), Rng(1000 + i + 17 * ++launches_), log);
    node.process = Process::runs;
    node.links.clear();
    give(i, Tick{});
  }
  // With the record that it saved, one life later.
  void relaunch(std::size_t i, std::uint64_t life, std::optional<wire::Endpoint> address = std::nullopt) {
    Self self = self_of(i, life);
    self.found = false;
    self.record = nodes_[i].record;
    if (address) self.identity.address = *address;
    launch(i, std::move(self));
  }

  Membership& operator[](std::size_t i) { return *nodes_[i].membership; }
  Instant now() const { return now_; }
  std::size_t size() const { return nodes_.size(); }

  // ---- faults
  void kill(std::size_t i) {  // its kernel closes and refuses
    nodes_[i].process = Process::gone;
    nodes_[i].inbox.clear();
    for (std::size_t other = 0; other < nodes_.size(); ++other)
      if (nodes_[other].links.erase(nodes_[i].address) && nodes_[other].process != Process::gone) give(other, LinkLost{nodes_[i].address});
  }
  void stop(std::size_t i) { nodes_[i].process = Process::stopped; }
  void go_on(std::size_t i) {
    nodes_[i].process = Process::runs;
    std::deque<Input> waiting;
    waiting.swap(nodes_[i].inbox);
    give(i, Tick{});
    for (Input& input : waiting) give(i, input);
  }
  // Nothing between the two sides any more.
  void cut(std::set<std::size_t> side) { side_ = std::move(side); }
  void heal() { side_.clear(); }
  std::function<bool(std::size_t from, std::size_t to, const wire::GossipBody&)> lost = [](auto...) { return false; };
  std::function<GoneChecked::Answer(std::size_t from, std::size_t to)> connect_answer;

  // ---- time
  void give(std::size_t i, const Input& input) {
    Node& node = nodes_[i];
    if (node.process == Process::stopped) {
      node.inbox.push_back(input);
      return;
    }
    if (node.process != Process::runs) return;
    Outputs out;
    node.membership->step(now_, input, out);
    perform(i, out);
  }
  void run(Duration duration) {
    const Instant end = now_ + duration;
    while (step_before(end)) {
    }
    now_ = end;
  }
  // False when it did not become true in time.
  bool run_until(const std::function<bool()>& done, Duration most) {
    const Instant end = now_ + most;
    while (!done())
      if (!step_before(end)) {
        now_ = end;
        return done();
      }
    return true;
  }

  // ---- looking
  MemberView view(std::size_t at, std::size_t of) { return nodes_[at].membership->find(id_of(of)).value_or(MemberView{}); }
  std::optional<wire::MemberState> state(std::size_t at, std::size_t of) {
    const auto view = nodes_[at].membership->find(id_of(of));
    if (!view) return std::nullopt;
    return view->state;
  }
  bool everybody_sees(std::size_t of, wire::MemberState state_wanted) {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (i != of && nodes_[i].process == Process::runs && state(i, of) != state_wanted) return false;
    return true;
  }
  bool all_alive_everywhere() {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].process == Process::runs && nodes_[i].membership->counts().alive != nodes_.size()) return false;
    return true;
  }
  std::size_t count(ChangeKind kind, std::optional<std::size_t> about = std::nullopt, std::optional<std::size_t> by = std::nullopt) const {
    std::size_t found = 0;
    for (const Seen& seen : changes)
      found += seen.change.kind == kind && (!about || seen.change.id == id_of(*about)) && (!by || seen.by == *by);
    return found;
  }
  std::string story() const {  // for messages of failed tests
    static constexpr const char* kinds[] = {
        "alive", "suspect",          "down",   "dead",   "left",   "restarted", "rebooted", "refute", "conflict",
        "fact",  "address_mismatch", "joined", "frozen", "thawed", "stalled"};
    std::string text;
    for (const Seen& seen : changes)
      text += std::to_string(seen.at.time_since_epoch() / 1ms) + " " + name_of(seen.by) + " sees " +
              kinds[static_cast<std::size_t>(seen.change.kind)] + " " + seen.change.name + "." +
              std::to_string(seen.change.incarnation & 0xfffff) + " " + seen.change.detail + "\n";
    return text;
  }
  std::vector<Seen> changes;
  std::vector<std::pair<std::size_t, Send>> sent;  // while record_sends
  bool record_sends = false;
  std::vector<wire::Endpoint> resolved;  // what seeds resolve to; empty: node 0
  std::size_t resolutions = 0;
  QuietLog log;

 private:
  struct Node {
    std::unique_ptr<Membership> membership;
    wire::Endpoint address;
    Process process = Process::never;
    std::deque<Input> inbox;
    std::set<wire::Endpoint> links;
    MemberRecord record;
  };
  struct Event {
    std::size_t to = 0;
    Input input;
  };

  bool step_before(Instant end) {
    Instant next = events_.empty() ? kNever : events_.begin()->first;
    std::optional<std::size_t> ticks;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].process == Process::runs && nodes_[i].membership->deadline() < next) {
        next = nodes_[i].membership->deadline();
        ticks = i;
      }
    if (next == kNever || next > end) return false;
    now_ = std::max(now_, next);
    if (ticks) {
      give(*ticks, Tick{});
    } else {
      const Event event = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      give(event.to, event.input);
    }
    return true;
  }
  std::optional<std::size_t> at(const wire::Endpoint& address) const {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].address == address && nodes_[i].process != Process::never) return i;
    return std::nullopt;
  }
  bool separated(std::size_t a, std::size_t b) const { return !side_.empty() && side_.count(a) != side_.count(b); }
  void later(Duration delay, std::size_t to, Input input) { events_.emplace(now_ + delay, Event{to, std::move(input)}); }

  void perform(std::size_t i, Outputs& out) {
    for (const Change& change : out.changes) changes.push_back({now_, i, change});
    if (out.save) nodes_[i].record = out.save->record;
    if (out.resolve_seeds) {
      ++resolutions;
      later(1ms, i, SeedsResolved{resolved.empty() ? std::vector{address_of(0)} : resolved});
    }
    for (const CheckGone& check : out.checks) {
      const auto to = at(check.to);
      auto answer = GoneChecked::Answer::silent;
      if (to && !separated(i, *to))
        answer = nodes_[*to].process == Process::gone ? GoneChecked::Answer::refused : GoneChecked::Answer::accepts;
      if (to && connect_answer) answer = connect_answer(i, *to);
      later(answer == GoneChecked::Answer::silent ? 500ms : 1ms, i, GoneChecked{check.to, answer});
    }
    for (Send& message : out.sends) {
      if (record_sends) sent.emplace_back(i, message);
      // A reply path is the sender's number + 1 here.
      const auto to = message.reply != 0 ? std::optional<std::size_t>(message.reply - 1) : at(message.to);
      if (!to || separated(i, *to) || nodes_[*to].process == Process::gone || lost(i, *to, message.body)) continue;
      if (message.reply == 0 && !message.member.none() && nodes_[*to].process == Process::runs && nodes_[i].links.insert(message.to).second)
        later(1ms, i, LinkUp{message.to});
      later(1ms, *to, Received{message.header, message.body, i + 1, nodes_[i].address.ip});
    }
  }

  MembershipOptions options_;
  Instant now_{1000s};
  std::vector<Node> nodes_;
  std::multimap<Instant, Event> events_;
  std::set<std::size_t> side_;
  std::uint64_t launches_ = 0;
};

}  // namespace dtrain::gossip
