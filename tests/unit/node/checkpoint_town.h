// Four hosts with a job that has checkpoints. The agents' part (streams, disks, tasks) is played here, at once and in order.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {

class CheckpointsTest : public ::testing::Test {
 protected:
  using MessageType = wire::MessageType;
  using How = RelayEnded::How;
  static constexpr std::size_t kChunk = 1000;
  static inline const std::string kBytes = std::string(3 * kChunk + 1, 'x');

  CheckpointsTest() {
    for (const char* name : {"n1", "n2", "n3", "n4"}) {
      houses.push_back(&town.add(name));
      House& house = *houses.back();
      house.started.facts.task_address = house.address().ip;
      house.started.facts.labels["house"] = name;
      house.options.restore_wait = 30s;
      house.options.down_grace = house.options.agent_grace = 5s;
    }
    for (House* house : houses) {
      house->start();
      town.run_for(1s);
    }
    town.run_for(15s);
    work();
  }
  static transfer::CheckpointInfo checkpoint(std::int64_t step, std::uint64_t place) {
    transfer::CheckpointInfo info;
    info.path = "/ckpt/j/" + std::to_string(step);
    info.step = step;
    info.complete = true;
    info.digest = "d" + std::to_string(step);
    info.place = place;
    return info;
  }
  // Its ps is on n4, a worker on n3: none of them coordinates.
  void submit() {
    for (const char* drained : {"n1", "n2"}) drain(drained, true);
    begin_submit();
    for (const char* drained : {"n1", "n2"}) drain(drained, false);
    run_for(1s);
    ASSERT_EQ(described().job.state, "Running") << described().waiting_for;
    const std::string places = where();
    ASSERT_TRUE(places == "ps-0@n3 worker-0@n4 " || places == "ps-0@n4 worker-0@n3 ") << places;
    ps = places.starts_with("ps-0@n4") ? houses[3] : houses[2];
    other = ps == houses[3] ? houses[2] : houses[3];
  }
  void begin_submit() {
    job::JobSpec spec;
    spec.name = "j";
    spec.framework = job::Framework::tensorflow;
    job::RoleSpec role;
    role.replicas = role.min_replicas = 1;
    role.command = {"true", "{hosts:ps}"};
    spec.roles["worker"] = spec.roles["ps"] = role;
    spec.roles["ps"].exclusive = true;
    if (dynamic_worker)  // no shim asks for a lease here
      for (auto& [name, r] : spec.roles) r.on_disconnect = job::OnDisconnect::keep;
    spec.policy.placement = job::Placement::spread;
    spec.policy.backoff_limit = 20;
    spec.policy.enable_dynamic_worker = dynamic_worker;
    spec.checkpoint = job::CheckpointSpec{};
    spec.checkpoint->dir = "/ckpt/j";
    spec.checkpoint->keep = keep;
    if (!restore.empty()) spec.checkpoint->restore = restore;
    wire::SubmitRequest submit;
    submit.spec = wire::encode(spec);
    const std::uint64_t before = houses[0]->requests();
    (void)houses[0]->ask<wire::SubmitReply>(MessageType::submit, submit, 1000);
    run_for(3s);
    const auto reply = houses[0]->answer<wire::SubmitReply>(before + 1);
    ASSERT_TRUE(reply) << reply.error().text();
  }
  void drain(const std::string& node, bool on) {
    (void)houses[0]->ask<wire::Empty>(MessageType::drain, wire::DrainRequest{node, "", on, 0}, 0);
    run_for(1s);
  }
  House& up() {
    return **std::ranges::find_if(houses, [](House* h) { return h->runs(); });
  }
  std::string where() {
    std::string text;
    const auto reply = up().ask<wire::TasksReply>(MessageType::query_tasks, wire::JobName{"j"});
    for (const auto& t : reply.value_or(wire::TasksReply{}).tasks) text += t.task + "@" + t.node + " ";
    return text;
  }
  // Why a job waits the coordinator knows.
  wire::JobDescription described() {
    wire::JobDescription d;
    for (House* house : houses) {
      if (!house->runs()) continue;
      auto said = house->ask<wire::JobDescription>(MessageType::describe_job, wire::JobName{"j"});
      if (said && (d.job.name.empty() || d.waiting_for.empty())) d = std::move(*said);
    }
    return d;
  }
  JobId id() { return described().job.id; }
  // The generation that is said to have written that step.
  std::optional<Generation> wrote(std::int64_t step) {
    const auto seen = up().ask<wire::CheckpointsReply>(MessageType::query_checkpoints, wire::CheckpointsRequest{"j", false}, 1000);
    for (const auto& c : seen.value_or(wire::CheckpointsReply{}).checkpoints)
      if (c.step == step) return c.generation;
    return std::nullopt;
  }
  void run_for(Duration time) {
    for (Duration t{}; t < time; t += 100ms) {
      work();
      if (t % 1s == 0ns) ask_for_leases();
      town.run_for(100ms);
    }
    work();
  }
  // As the shims of all that was started under a lease do, also of those that have ended: these are answered that they are superseded.
  void ask_for_leases() {
    for (House* house : houses) {
      std::set<AssignmentId> leased;
      std::map<AssignmentId, AttemptNumber> started;
      for (const Effect& e : house->effects) {
        if (const auto* launch = std::get_if<LaunchShim>(&e); launch != nullptr && launch->spec.lease > 0ns) leased.insert(launch->spec.id);
        if (const auto* start = std::get_if<StartAttempt>(&e); start != nullptr && leased.contains(start->id))
          started[start->id] = start->attempt;
      }
      for (const auto& [id, attempt] : started)
        if (house->runs()) house->give(LeaseAsked{id, attempt, ++nonce_});
    }
  }
  // A task on that host wrote it: who watches is told.
  void write(House& house, const transfer::CheckpointInfo& info) {
    auto& disk = disks[shared ? nullptr : &house];
    disk.insert(disk.begin(), info);
    for (House* viewer : houses)
      if (viewer->runs() && watching.contains(viewer) && (shared || viewer == &house)) viewer->give(CheckpointsScanned{id(), 0, disk});
    run_for(2s);
  }
  void restart_ps() {
    AttemptExited died;
    for (const Effect& e : ps->effects)
      if (const auto* start = std::get_if<StartAttempt>(&e); start != nullptr && start->id.task.role == "ps")
        died.id = start->id, died.attempt = start->attempt;
    died.exit.signal = 9;
    ps->give(died);
  }
  void lose(House& house) {
    town.kill(house);
    for (const Stream& s : std::vector<Stream>(streams))
      if (s.other == &house) end(*s.opener, s.open.part, How::lost, "was silent for 30 s");
    watching.erase(&house);
  }
  // The host that was lost is back, and the others may run no more, so the job begins again on it and on that of its ps.
  void other_returns_and_runs_it() {
    ++other->started.life;
    other->start();
    run_for(10s);
    for (House* house : houses)
      if (house != ps && house != other) drain(house->started.facts.name, true);
    run_for(60s);
  }
  std::size_t launched(const House& house, Generation generation) const {
    return static_cast<std::size_t>(std::ranges::count_if(house.effects, [&](const Effect& e) {
      const auto* launch = std::get_if<LaunchShim>(&e);
      return launch != nullptr && launch->spec.id.generation == generation;
    }));
  }

  // ---- the agents
  struct Stream {
    House* opener = nullptr;
    House* other = nullptr;
    OpenRelay open;
    ConnectionId accepted = 0;
  };
  void work() {
    for (bool any = true; any;) {
      any = false;
      for (House* house : houses) {
        std::size_t& done = done_[house];
        while (house->runs() && done < house->effects.size()) {
          const Effect effect = house->effects[done++];
          any = true;
          std::visit([&](const auto& e) { perform(*house, e); }, effect);
        }
        if (!house->runs()) done = house->effects.size();
      }
    }
  }
  std::uint64_t nonce_ = 0;
  template <class E>
  void perform(House&, const E&) {}
  void perform(House& house, const OpenRelay& e) {
    House* to = nullptr;
    for (House* h : houses)
      if (h->address() == e.peer->to) to = h;
    if (to == nullptr || !to->runs()) return end(house, e.part, How::lost, "was silent for 30 s");
    streams.push_back({&house, to, e, 0});
    RelayReceived received;
    received.header = e.peer->header;
    received.message = e.open;
    to->give(received);
  }
  void perform(House& house, const AcceptRelay& e) {
    for (Stream& s : streams)
      if (s.other == &house && s.open.open.stream == e.stream && s.opener->started.facts.id == e.peer.member.text()) {
        s.accepted = e.connection;
        house.give(Request{e.connection, 1, s.open.query});
        return;
      }
  }
  void perform(House& house, const Reply& e) { answer(house, e.connection, e.body); }
  void perform(House& house, const CloseRelay& e) {
    for (Stream& s : streams)
      if (s.opener == &house && s.open.part == e.part) return close(s);
  }
  std::vector<transfer::CheckpointInfo>& disk_of(House& house) { return disks[shared ? nullptr : &house]; }
  const transfer::CheckpointInfo* find(House& house, const std::string& path) {
    for (const auto& info : disk_of(house))
      if (info.path == path) return &info;
    return nullptr;
  }
  void perform(House& house, const WatchCheckpoints& e) {
    if (e.on) watching.insert(&house);
    else watching.erase(&house);
  }
  void perform(House& house, const ScanCheckpoints& e) {
    asked.insert(&house);
    if (!e.below.empty()) read_below[e.spec.dir].insert(e.below);
    if (hung.contains(&house)) return;
    if (const auto* itself = find(house, e.spec.dir))
      return house.give(CheckpointsScanned{e.job, e.token, std::vector<transfer::CheckpointInfo>{*itself}});
    house.give(CheckpointsScanned{e.job, e.token, disk_of(house), left});
  }
  void perform(House& house, const EndVerification& e) {
    const auto it = reading.find({&house, e.token});
    if (it == reading.end()) return;
    ended.insert(&house);
    const VerifyCheckpoint read = it->second;
    reading.erase(it);
    house.give(CheckpointVerified{read.job, read.token, read.info.path, fail(ErrorCode::unavailable, "nobody waits")});
  }
  void perform(House& house, const VerifyCheckpoint& e) {
    read_below[e.info.path].insert(e.below);
    if (slow && e.token != 0) {
      reading[{&house, e.token}] = e;
      return;
    }
    Status result;
    const auto* there = find(house, e.info.path);
    if (there == nullptr) result = fail(ErrorCode::not_found, "could not verify " + e.info.path + ": it is not there");
    else if (unreadable.contains(&house)) result = fail(ErrorCode::io, "could not verify " + e.info.path + ": Input/output error");
    else if (rotten.contains(there->place)) result = fail(ErrorCode::damaged, "could not verify " + e.info.path + ": a hash differs");
    house.give(CheckpointVerified{e.job, e.token, e.info.path, result});
  }
  void perform(House& house, const QuarantineCheckpoint& e) {
    std::erase_if(disk_of(house), [&](const auto& info) { return info.path == e.info.path; });
    moved.insert(&house);
    house.give(CheckpointQuarantined{e.job, e.token, e.info.path, e.info.path + ".quarantined-1"});
  }
  void perform(House& house, const DeleteCheckpoint& e) {
    deleted.push_back(e.info.step);
    std::erase_if(disk_of(house), [&](const auto& info) { return info.path == e.info.path; });
  }
  void perform(House& house, const SendCheckpoint& e) {
    read_below[e.info.path].insert(e.below);
    const auto say = [&](MessageType type, const auto& payload, bool last) {
      answer(house, e.connection, wire::encode(wire::make_message(type, e.request, payload, last)));
    };
    if (find(house, e.info.path) == nullptr)
      return say(MessageType::error, wire::error_reply({ErrorCode::not_found, "it is not here", ""}), true);
    sent.push_back({&house, e.offset});
    std::string bytes = kBytes;
    if (garbles.erase(&house) != 0) bytes.back() = 'y';
    say(MessageType::checkpoint_files, wire::CheckpointFiles{{{"MANIFEST.json", 1}, {"weights.bin", bytes.size() - 1}}}, false);
    for (std::size_t at = e.offset;; at += kChunk) {
      if (breaks_after != 0 && --breaks_after == 0) {
        for (const Stream& s : std::vector<Stream>(streams))
          if (s.other == &house && s.accepted == e.connection) end(*s.opener, s.open.part, How::lost, "was silent for 30 s");
        return;
      }
      const bool last = at + kChunk >= bytes.size();
      say(MessageType::blob_chunk, wire::BlobChunk{at, bytes.substr(at, kChunk)}, last);
      if (last) return;
    }
  }
  void perform(House& house, const WriteCheckpoint& e) {
    if (full.contains(&house))
      return house.give(CheckpointWritten{e.writer, fail(ErrorCode::io, "could not write a copy of checkpoint: No space left on device")});
    std::string& bytes = partial[{&house, e.writer}];
    ASSERT_EQ(bytes.size(), e.offset);
    ASSERT_EQ(e.files.empty(), e.offset != 0);
    ASSERT_EQ(e.dir, "/ckpt/j");
    bytes += e.bytes;
    if (!e.last) return;
    const bool right = bytes == kBytes;
    partial.erase({&house, e.writer});
    if (right) {
      auto copy = e.info;
      copy.place = 1000 + e.info.place;
      std::erase_if(disk_of(house), [&](const auto& info) { return info.path == e.info.path && info.is_share(); });
      if (e.info.is_share()) {  // with what lay there it is all of it
        copy.shares = {};
        copy.complete = true;
        copy.digest = "all of it";
      }
      disk_of(house).push_back(copy);
    }
    house.give(CheckpointWritten{e.writer, right ? Status{} : Status(fail(ErrorCode::damaged, "a hash differs"))});
  }
  void perform(House& house, const DropCheckpoint& e) { partial.erase({&house, e.writer}); }
  void perform(House& house, const Stage& e) { house.give(Staged{e.id, std::string("/work")}); }
  void perform(House& house, const LaunchShim& e) { house.give(ShimUp{e.spec.id, {}}); }
  void perform(House& house, const StartAttempt& e) {
    if (e.id.task.role == cut_off_at_start) town.beyond = {&house};
    house.give(AttemptStarted{e.id, e.attempt, 100, {}});
  }
  void perform(House& house, const EndShim& e) { house.give(ShimGone{e.id, true}); }
  void perform(House& house, const KillTask& e) {
    AttemptExited exited;
    exited.id = e.id;
    exited.attempt = 1;
    for (const Effect& effect : house.effects)
      if (const auto* start = std::get_if<StartAttempt>(&effect); start != nullptr && start->id == e.id) exited.attempt = start->attempt;
    exited.exit.signal = 9;
    house.give(exited);
  }
  void answer(House& house, ConnectionId connection, const std::string& body) {
    for (const Stream& s : streams) {
      if (s.other != &house || s.accepted != connection) continue;
      const Stream stream = s;
      const auto message = wire::decode<wire::Message>(body);
      stream.opener->give(RelayAnswered{stream.open.connection, body});
      if (!message->last) return;
      if (message->type != MessageType::error) return end(*stream.opener, stream.open.part, How::done, "");
      const auto errors = wire::decode<wire::ErrorReply>(message->payload)->errors;
      return end(*stream.opener, stream.open.part, How::refused, errors.front().message, errors.front().code);
    }
  }
  void end(House& opener, ConnectionId part, How how, const std::string& cause, ErrorCode code = ErrorCode::unavailable) {
    for (Stream& s : streams)
      if (s.opener == &opener && s.open.part == part) {
        close(s);
        break;
      }
    if (opener.runs()) opener.give(RelayEnded{part, how, {code, cause, ""}});
  }
  void close(Stream& s) {
    const Stream over = s;
    std::erase_if(streams, [&](const Stream& x) { return x.opener == over.opener && x.open.part == over.open.part; });
    if (over.accepted != 0 && over.other->runs()) over.other->give(ConnectionClosed{over.accepted});
  }

  Town town;
  std::vector<House*> houses;
  House *ps = nullptr, *other = nullptr;
  bool shared = false;  // one directory for all
  bool dynamic_worker = false;
  std::string left;                                               // what a save may have left, as every scan says that is asked for
  std::map<House*, std::vector<transfer::CheckpointInfo>> disks;  // of nullptr: the shared one
  std::map<std::pair<House*, ConnectionId>, std::string> partial;
  std::vector<Stream> streams;
  std::set<House*> watching, asked, full, garbles, hung, unreadable, moved;
  std::vector<std::int64_t> deleted;                        // steps
  std::map<std::string, std::set<std::string>> read_below;  // by path: below which directories no link was followed
  std::uint32_t keep = 0;
  std::string restore;             // a path; "": auto
  std::set<std::uint64_t> rotten;  // places
  bool slow = false;               // awaited verifications take for ever: those are in `reading`
  std::map<std::pair<House*, std::uint64_t>, VerifyCheckpoint> reading;
  std::set<House*> ended;  // whose verification was ended
  std::vector<std::pair<House*, std::uint64_t>> sent;
  std::size_t breaks_after = 0;  // chunks
  std::string cut_off_at_start;  // role of a task whose host is, before others hear of the start

 private:
  std::map<House*, std::size_t> done_;
};

}  // namespace dtrain::node
