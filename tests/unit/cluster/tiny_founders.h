// Founders over a perfect network, in one place: every message arrives at once unless a test holds or cuts it
// off.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/cluster/formation.h"

namespace dtrain::cluster {

class TinyFounders {
 public:
  struct Machine {
    MemberId id;
    formation::Record disk;
    std::optional<formation::Founding> log;  // that began here
    std::unique_ptr<formation::Formation> core;
    std::vector<std::size_t> addresses;  // of the seats, as this machine names them
    std::optional<formation::Join> join;
    std::optional<formation::Persist> under_way;
    bool hold_persists = false;
    bool fail_persists = false;
    std::size_t abandoned = 0;
    std::size_t began = 0;
  };
  struct Message {
    std::size_t from = 0, to = 0;
    formation::FormationReport report;
    MemberId sender;
  };

  explicit TinyFounders(std::size_t count, std::string broken_rule = "") : machines_(count) {
    options_.broken_rule = std::move(broken_rule);
    for (std::size_t i = 0; i < count; ++i) {
      names_.push_back({'h', "123456789abcdefg"[i]});  // in ascending order
      machines_[i].id = {1, i + 1};
    }
  }

  Machine& at(std::size_t i) { return machines_[i]; }
  formation::Formation& core(std::size_t i) { return *machines_[i].core; }
  const std::vector<std::string>& names() const { return names_; }

  void start(std::size_t i, std::vector<std::string> founders = {}) {
    formation::Self self;
    self.id = machines_[i].id;
    self.founders = founders.empty() ? names_ : std::move(founders);
    machines_[i].addresses.clear();
    for (const std::string& name : self.founders)
      machines_[i].addresses.push_back(std::find(names_.begin(), names_.end(), name) - names_.begin());
    self.name = names_[i];
    self.record = machines_[i].disk;
    machines_[i].core = std::make_unique<formation::Formation>(self, options_, Rng(++seeds_));
    tell(i, formation::Tick{});
  }
  void start_all() {
    for (std::size_t i = 0; i < machines_.size(); ++i) start(i);
  }
  void kill(std::size_t i) {
    machines_[i].core.reset();
    machines_[i].under_way.reset();
    machines_[i].join.reset();
  }
  void lose_disk(std::size_t i) {  // while it does not run
    machines_[i].disk = {};
    machines_[i].log.reset();
    machines_[i].id.high += 10;
  }
  void tell(std::size_t i, const formation::Input& input) {
    if (!machines_[i].core) return;
    formation::Outputs out;
    machines_[i].core->step(now_, input, out);
    if (out.join) machines_[i].join = out.join;
    for (const formation::Send& send : out.sends) messages_.push_back({i, machines_[i].addresses[send.to], send.report, machines_[i].id});
    if (out.persist) {
      CHECK(!machines_[i].under_way);
      machines_[i].under_way = std::move(out.persist);
      if (!machines_[i].hold_persists) finish_persist(i);
    }
  }
  void finish_persist(std::size_t i) {
    Machine& machine = machines_[i];
    const formation::Persist persist = *std::exchange(machine.under_way, std::nullopt);
    if (machine.fail_persists) return tell(i, formation::PersistFailed{});
    machine.disk = *formation::Record::decode(persist.record.encode());
    if (persist.begin) machine.log = persist.begin, ++machine.began;
    if (persist.abandon) machine.log.reset(), ++machine.abandoned;
    tell(i, formation::Persisted{});
  }
  void cut(std::size_t a, std::size_t b, bool on = true) {
    for (const auto& pair : {std::pair(a, b), std::pair(b, a)})
      if (on) cuts_.insert(pair);
      else cuts_.erase(pair);
  }
  // Which messages are kept back; deliver_held() brings them after all.
  void hold(std::function<bool(const Message&)> which) { held_back_ = std::move(which); }
  void deliver_held() {
    held_back_ = nullptr;
    for (Message& message : std::exchange(held_, {})) messages_.push_back(std::move(message));
    deliver();
  }
  void deliver() {
    for (std::size_t count = 0; !messages_.empty(); ++count) {
      CHECK(count < 10'000);  // founders that answer each other for ever
      const Message message = messages_.front();
      messages_.pop_front();
      if (cuts_.contains({message.from, message.to})) continue;
      if (held_back_ && held_back_(message)) {
        held_.push_back(message);
        continue;
      }
      tell(message.to, formation::Received{message.sender, message.report});
    }
  }
  void pass(Duration time) {
    for (const Instant end = now_ + time; now_ < end;) {
      Instant next = end;
      for (const Machine& machine : machines_)
        if (machine.core) next = std::min(next, std::max(machine.core->deadline(), now_ + 1ms));
      now_ = next;
      for (std::size_t i = 0; i < machines_.size(); ++i)
        if (machines_[i].core && machines_[i].core->deadline() <= now_) tell(i, formation::Tick{});
      deliver();
    }
  }

  // All logs that there are belong to one cluster; how many there are.
  std::size_t one_cluster() const {
    std::set<MemberId> clusters;
    std::size_t logs = 0;
    for (const Machine& machine : machines_)
      if (machine.log) clusters.insert(machine.log->cluster), ++logs;
    CHECK(clusters.size() <= 1);
    return logs;
  }

 private:
  std::vector<std::string> names_;
  std::vector<Machine> machines_;
  formation::FormationOptions options_;
  std::deque<Message> messages_;
  std::vector<Message> held_;
  std::function<bool(const Message&)> held_back_;
  std::set<std::pair<std::size_t, std::size_t>> cuts_;
  std::uint64_t seeds_ = 0;
  Instant now_{std::chrono::hours(1)};
};

}  // namespace dtrain::cluster
