// Nodes that hear each other, in virtual time: what one sends the other receives at once; a disk that writes
// at once unless told to wait; a client at each.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/node/node.h"
#include "common/raft/raft.h"
#include "common/wire/control.h"

namespace dtrain::node {

class LinesLog final : public Log {
 public:
  using Log::write;
  void write(LogLevel, std::string_view event, std::span<const LogField> fields) override {
    std::string line(event);
    for (const auto& f : fields) line += " " + std::string(f.key) + "=" + f.value;
    lines.push_back(std::move(line));
  }
  std::size_t count(const std::string& part) const {
    std::size_t n = 0;
    for (const auto& line : lines) n += line.find(part) != std::string::npos;
    return n;
  }
  std::vector<std::string> lines;
};

class Town;

class House {
 public:
  House(Town& town, std::string name, std::uint8_t number);

  // How it starts, for the test to change before start().
  Started started;
  NodeOptions options;

  void start();
  // The process ends; start() begins its next life with what the disk has.
  void kill() { node_.reset(); }
  bool runs() const { return node_ != nullptr; }
  void give(const Event& event);
  const Node& node() const { return *node_; }
  Instant deadline() const { return node_->deadline(); }
  std::string status_line() const { return node_->status_line(); }
  const wire::Endpoint& address() const { return started.members.endpoint; }

  // A client's request; its last answer so far. `uid` of the client; `inside`: the task that it belongs to.
  template <class Reply, class Query>
  Result<Reply> ask(wire::MessageType type, const Query& query, std::uint32_t uid = 0, std::optional<AssignmentId> inside = {});
  template <class Reply>
  Result<Reply> answer(std::uint64_t number) const;
  std::uint64_t requests() const { return requests_; }  // number of the last one
  wire::StatusView status() { return ask<wire::StatusView>(wire::MessageType::query_status, wire::JobName{}).value_or(wire::StatusView{}); }
  std::vector<wire::NodeView> nodes(const std::string& name = "") {
    return ask<wire::NodesReply>(wire::MessageType::query_nodes, wire::NodeName{name}).value_or(wire::NodesReply{}).nodes;
  }
  std::vector<wire::EventView> events(std::uint64_t after = 0, std::uint64_t after_local = 0) {
    events_.clear();
    (void)ask<wire::EventsReply>(wire::MessageType::query_events, wire::EventsRequest{"", after, false, after_local});
    return events_;
  }

  LinesLog log;
  std::vector<Effect> effects;       // all so far
  std::vector<SaveMembers> unsaved;  // with hold_saves
  bool hold_saves = false;
  std::vector<std::uint64_t> unwritten;  // tickets, with hold_notes
  bool hold_notes = false;               // of what Node notes for later lives of the agent
  raft::Stored disk;
  std::map<std::uint64_t, wire::Message> answers;  // newest of each request

 private:
  friend class Town;
  void perform(const Effect& effect);

  Town& town_;
  std::unique_ptr<Node> node_;
  std::uint64_t requests_ = 0;           // each on a connection of that number, which no node takes (connections.h)
  std::vector<wire::EventView> events_;  // of all replies since it was cleared
};

class Town {
 public:
  House& add(const std::string& name) {
    houses_.push_back(std::make_unique<House>(*this, name, static_cast<std::uint8_t>(houses_.size() + 1)));
    return *houses_.back();
  }
  // Everything that is due until then, in order of time.
  void run_for(Duration time) {
    const Instant end = now.boot + time;
    for (;;) {
      deliver();
      Instant next = end;
      House* due = nullptr;
      bool letter = false;
      if (!mail_.empty() && mail_.begin()->first < next) next = mail_.begin()->first, letter = true;
      for (const auto& house : houses_)
        if (house->node_ && house->deadline() < next) next = house->deadline(), due = house.get();
      if (due == nullptr && !letter) break;
      advance(next);
      if (due != nullptr) due->give(Tick{});
    }
    advance(end);
  }
  void send(House& from, const gossip::Send& send) {
    House* to = nullptr;
    if (send.reply != 0) {
      to = houses_[send.reply - 1].get();
    } else {
      for (const auto& house : houses_)
        if (house->address() == send.to && house->node_) to = house.get();
    }
    if (to == nullptr || !to->runs() || to == cut_off || &from == cut_off || apart(from, *to)) return;
    std::size_t path = 1;
    while (houses_[path - 1].get() != &from) ++path;
    if (send.reply == 0 && links_.insert({&from, to}).second) post(&from, Gossiped{gossip::LinkUp{send.to}});
    const std::string observed = &from == translated ? seen_at : from.address().ip;
    post(to, Gossiped{gossip::Received{send.header, send.body, path, observed}});
  }
  void send(const House& from, const SendLog& send) {
    if (&from == cut_off) return;
    for (const auto& house : houses_)
      for (int times = 0; house->address() == send.to && house->runs() && house.get() != cut_off && house.get() != without_log &&
                          !apart(from, *house) && times < copies;
           ++times)
        post(house.get(), LogReceived{send.header, send.message}, is_chunk(send.message) ? chunks : Duration{});
  }
  // To another founder, who is named by its address.
  void send(const House& from, const SendFormation& send) {
    for (const auto& house : houses_)
      if (house->address().ip == send.founder && house->runs() && !(cut && cut(from, *house)))
        post(house.get(), FormationReceived{send.header, send.report});
  }
  // Its process is gone: whoever had a link to it sees that.
  void kill(House& gone) {
    gone.kill();
    std::erase_if(links_, [&](const auto& link) { return link.first == &gone; });
    for (const auto& house : houses_)
      if (links_.erase({house.get(), &gone}) != 0) post(house.get(), Gossiped{gossip::LinkLost{gone.address()}});
  }
  void check_gone(House& from, const wire::Endpoint& to) {
    using gossip::GoneChecked;
    bool runs = false;
    const House* there = nullptr;
    for (const auto& house : houses_)
      if (house->address() == to) there = house.get();
    for (const auto& house : houses_) runs = runs || (house->address() == to && house->runs());
    const bool heard = &from != cut_off && there != cut_off && (there == nullptr || !apart(from, *there));
    post(&from, Gossiped{GoneChecked{to, !heard ? GoneChecked::Answer::silent
                                         : runs ? GoneChecked::Answer::accepts
                                                : GoneChecked::Answer::refused}});
  }
  int copies = 1;                                               // of each message about the log
  std::function<bool(const House& from, const House& to)> cut;  // between founders: nothing arrives
  const House* without_log = nullptr;                           // hears nothing about the log
  const House* translated = nullptr;                            // others see it come from `seen_at`
  std::string seen_at;
  const House* cut_off = nullptr;  // of members: what it sends and is sent is lost
  std::set<const House*> beyond;   // the cut of the network: they hear each other, and so do all others
  bool apart(const House& from, const House& to) const { return beyond.contains(&from) != beyond.contains(&to); }
  Duration travel{}, disk{};  // of a message; of a write
  Duration chunks{};          // more, of a chunk of a snapshot
  std::uint64_t seed = 0;

  Now now{Instant(1000s), WallTime(1'000'000ms)};

 private:
  static bool is_chunk(const wire::LogMessage& message) {
    const auto* raft = std::get_if<wire::RaftMessage>(&message);
    return raft != nullptr && std::holds_alternative<wire::SnapshotChunk>(raft->body);
  }
  void advance(Instant to) {
    if (to <= now.boot) return;
    now.wall += std::chrono::duration_cast<std::chrono::milliseconds>(to - now.boot);
    now.boot = to;
  }
  friend class House;
  struct Letter {
    House* to;
    std::uint64_t life;  // 0: of any
    Event event;
  };
  void post(House* to, Event event, Duration more = {}) { mail_.emplace(now.boot + travel + more, Letter{to, 0, std::move(event)}); }
  void deliver() {
    while (!mail_.empty() && mail_.begin()->first <= now.boot) {
      const Letter letter = std::move(mail_.extract(mail_.begin()).mapped());
      const std::uint64_t life = letter.to->started.life;
      if (letter.to->runs() && (letter.life == 0 || letter.life == life)) letter.to->give(letter.event);
    }
  }
  std::vector<std::unique_ptr<House>> houses_;
  std::multimap<Instant, Letter> mail_;
  std::set<std::pair<House*, House*>> links_;
};

inline House::House(Town& town, std::string name, std::uint8_t number) : town_(town) {
  const MemberId id{0x1000ull + number, number};
  started.life = 1;
  started.facts.id = id.text();
  started.facts.name = std::move(name);
  started.facts.boot_id = "boot-1";
  started.facts.cpu_millis = 8000;
  started.facts.memory_bytes = 64ull << 30;
  for (const char* pci : {"0000:10:00.0", "0000:20:00.0"}) {
    Gpu& gpu = started.facts.gpus.emplace_back();
    gpu.index = static_cast<std::uint32_t>(started.facts.gpus.size() - 1);
    gpu.pci = pci;
  }
  started.members.network = true;
  started.members.endpoint = {"10.0.0." + std::to_string(number), 7400};
  started.facts.address = started.members.endpoint.text();
  started.members.found = number == 1;
  started.members.holds_ledger = number == 1;
  started.members.new_cluster_id = {0xc1, 0x57e2};
  if (number != 1) {
    started.members.seeds = {"10.0.0.1"};
    started.members.waiting_for = "the cluster of --join to admit this node";
  }
  options.cluster_name = "lab";
  options.version = "9.9";
  options.access.fallback = Role::submit;
}

inline void House::start() {
  const std::string& ip = started.members.endpoint.ip;
  const std::uint64_t own = std::stoul(ip.substr(ip.rfind('.') + 1));
  const std::uint64_t number = own < 10 ? '0' + own : 1'000'000'000 + own;  // no two draw the same
  node_ = std::make_unique<Node>(options, Rng(number + 1000 * started.life + 1'000'000 * town_.seed), log);
  started.replica = disk;
  give(started);
  if (started.members.network) give(NetworkUp{});
}

inline void House::give(const Event& event) {
  std::vector<Effect> out;
  node_->step(town_.now, event, out);
  for (const Effect& effect : out) {
    effects.push_back(effect);
    perform(effect);
  }
}

inline void House::perform(const Effect& effect) {
  if (const auto* p = std::get_if<Persist>(&effect)) {
    if (hold_notes && !p->put_task_records.empty()) return unwritten.push_back(p->ticket);
    if (p->formation) started.members.formation = *cluster::formation::Record::decode(*p->formation);
    for (const std::string& key : p->erase_task_records) started.task_records.erase(key);
    for (const auto& [key, bytes] : p->put_task_records) started.task_records[key] = bytes;
    raft::store(disk, {0, p->forget_log, p->hard, p->snapshot, p->reset_log, p->truncate_from, p->append, {}});
    if (town_.disk == Duration{}) return give(Persisted{p->ticket});
    town_.mail_.emplace(town_.now.boot + town_.disk, Town::Letter{this, started.life, Persisted{p->ticket}});
    return;
  }
  if (const auto* save = std::get_if<SaveMembers>(&effect))
    return hold_saves ? unsaved.push_back(*save) : give(MembersSaved{save->ticket, {}});
  if (const auto* send = std::get_if<gossip::Send>(&effect)) return town_.send(*this, *send);
  if (const auto* send = std::get_if<SendLog>(&effect)) return town_.send(*this, *send);
  if (const auto* check = std::get_if<gossip::CheckGone>(&effect)) return town_.check_gone(*this, check->to);
  if (const auto* send = std::get_if<SendFormation>(&effect)) return town_.send(*this, *send);
  if (std::holds_alternative<gossip::ResolveSeeds>(effect) && !started.members.founders.empty()) {
    gossip::SeedsResolved all;
    for (const std::string& seed : started.members.seeds) all.endpoints.push_back({seed, 7400});
    return give(Gossiped{all});
  }
  if (std::holds_alternative<gossip::ResolveSeeds>(effect)) return give(Gossiped{gossip::SeedsResolved{{{"10.0.0.1", 7400}}}});
  if (const auto* reply = std::get_if<Reply>(&effect))
    if (auto message = wire::decode<wire::Message>(reply->body)) {
      answers[reply->request] = *message;
      if (message->type != wire::MessageType::events) return;
      const auto batch = wire::decode<wire::EventsReply>(message->payload).value_or(wire::EventsReply{});
      events_.insert(events_.end(), batch.events.begin(), batch.events.end());
    }
}

template <class Reply_, class Query>
Result<Reply_> House::ask(wire::MessageType type, const Query& query, std::uint32_t uid, std::optional<AssignmentId> inside) {
  const std::uint64_t number = ++requests_;
  Caller caller{"somebody", uid};
  caller.inside = std::move(inside);
  give(ConnectionOpened{number, caller});
  give(Request{number, number, wire::encode(wire::make_message(type, number, query))});
  return answer<Reply_>(number);
}

template <class Reply_>
Result<Reply_> House::answer(std::uint64_t number) const {
  const auto found = answers.find(number);
  if (found == answers.end()) return fail(ErrorCode::unavailable, "no answer yet");
  const wire::Message& answer = found->second;
  if (answer.type == wire::MessageType::error) {
    const auto error = wire::decode<wire::ErrorReply>(answer.payload);
    if (!error || error->errors.empty()) return fail(ErrorCode::internal, "an error that says nothing");
    return fail(error->errors.front().code, error->errors.front().message, error->errors.front().next);
  }
  return wire::decode<Reply_>(answer.payload);
}

}  // namespace dtrain::node
