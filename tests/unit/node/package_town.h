// Hosts with jobs that have packages. The agents' part (streams, disks, tasks) is played here, at once and in order.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/node/packages.h"
#include "tests/unit/node/two_nodes.h"

namespace dtrain::node {

class PackagesTest : public ::testing::Test {
 protected:
  using MessageType = wire::MessageType;
  using How = RelayEnded::How;
  static constexpr std::size_t kChunk = 1000;
  static inline const std::string kDigest = std::string(64, 'a');
  static inline const std::string kBytes = std::string(10 * kChunk + 1, 'x');

  PackagesTest() {
    for (const char* name : {"n1", "n2", "n3"}) {
      houses.push_back(&town.add(name));
      houses.back()->started.facts.task_address = houses.back()->address().ip;
      houses.back()->options.packages_are_given = true;
    }
    for (House* house : houses) {
      house->start();
      town.run_for(1s);
    }
    town.run_for(15s);
    work();
    blobs[houses[0]].insert(kDigest);
  }
  job::JobSpec with_package(std::uint32_t workers, const std::string& name = "j", const std::string& digest = kDigest) {
    job::JobSpec spec;
    spec.name = name;
    spec.framework = job::Framework::generic;
    spec.policy.placement = job::Placement::spread;
    job::RoleSpec role;
    role.replicas = role.min_replicas = workers;
    role.command = {"true"};
    spec.roles["worker"] = role;
    spec.package_digest = digest;
    return spec;
  }
  // No host has as many GPUs.
  job::JobSpec that_waits(const std::string& name = "j", const std::string& digest = kDigest) {
    job::JobSpec spec = with_package(1, name, digest);
    spec.roles["worker"].resources.gpus = 8;
    return spec;
  }
  // The number of the request.
  std::uint64_t submit(House& house, const job::JobSpec& spec) {
    wire::SubmitRequest submit;
    submit.spec = wire::encode(spec);
    (void)house.ask<wire::SubmitReply>(MessageType::submit, submit, 1000);
    return house.requests();
  }
  void run_for(Duration time) {
    for (Duration t{}; t < time; t += 100ms) {
      work();
      town.run_for(100ms);
    }
    work();
  }
  std::vector<wire::TaskView> tasks(House& house) {
    const auto reply = house.ask<wire::TasksReply>(MessageType::query_tasks, wire::JobName{"j"});
    return reply ? reply->tasks : std::vector<wire::TaskView>{};
  }
  std::size_t launched(const House& house) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(house.effects, [](const Effect& e) { return std::holds_alternative<LaunchShim>(e); }));
  }
  // Those that it asked others for.
  std::vector<std::string> fetched(const House& house) const {
    std::vector<std::string> digests;
    for (const Effect& e : house.effects) {
      const auto* open = std::get_if<OpenRelay>(&e);
      const auto query = open != nullptr ? wire::decode<wire::Message>(open->query) : Result<wire::Message>(wire::Message{});
      if (query && query->type == MessageType::get_blob) digests.push_back(wire::decode<wire::GetBlobRequest>(query->payload)->digest);
    }
    return digests;
  }
  std::vector<SendBlob> sent(const House& house) const {
    std::vector<SendBlob> all;
    for (const Effect& e : house.effects)
      if (const auto* send = std::get_if<SendBlob>(&e)) all.push_back(*send);
    return all;
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
  template <class E>
  void perform(House&, const E&) {}
  void perform(House& house, const OpenRelay& e) {
    House* other = nullptr;
    for (House* h : houses)
      if (h->address() == e.peer->to) other = h;
    if (other == nullptr || !other->runs() || cut.contains(other)) return end(house, e.part, How::lost, "was silent for 30 s");
    streams.push_back({&house, other, e, 0});
    RelayReceived received;
    received.header = e.peer->header;
    received.message = e.open;
    other->give(received);
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
  void perform(House& house, const SendBlob& e) {
    const auto say = [&](MessageType type, const auto& payload, bool last) {
      answer(house, e.connection, wire::encode(wire::make_message(type, e.request, payload, last)));
    };
    if (!blobs[&house].contains(e.digest) || gone.contains(&house))
      return say(MessageType::error, wire::error_reply({ErrorCode::not_found, "it is not here", ""}), true);
    const auto most = chunks.find(&house);
    std::string bytes = kBytes;
    if (damaged.contains(&house)) bytes.back() = 'y';
    for (std::size_t at = e.offset;; at += kChunk) {
      if (breaks_after != 0 && --breaks_after == 0) {
        for (const Stream& s : std::vector<Stream>(streams))
          if (s.other == &house && s.accepted == e.connection) end(*s.opener, s.open.part, How::lost, "was silent for 30 s");
        return;
      }
      if (most != chunks.end() && at >= most->second * kChunk) return;
      const bool last = at + kChunk >= bytes.size();
      say(MessageType::blob_chunk, wire::BlobChunk{at, bytes.substr(at, kChunk)}, last);
      if (last) return;
    }
  }
  void perform(House& house, const WriteBlob& e) {
    if (full.contains(&house))
      return house.give(BlobWritten{e.connection, e.request, fail(ErrorCode::limit, "could not store the package: the disk is full")});
    std::string& bytes = partial[{&house, e.connection}];
    ASSERT_EQ(bytes.size(), e.offset);
    bytes += e.bytes;
    if (!e.last) return;
    const bool right = bytes == kBytes;
    partial.erase({&house, e.connection});
    if (right) blobs[&house].insert(e.digest), gone.erase(&house);
    house.give(BlobWritten{e.connection, e.request,
                           right ? Result<std::string>(e.digest) : Result<std::string>(fail(ErrorCode::damaged, "another digest"))});
  }
  void perform(House& house, const DropBlob& e) { partial.erase({&house, e.connection}); }
  void perform(House& house, const FindBlob& e) { house.give(BlobFound{e.digest, blobs[&house].contains(e.digest)}); }
  void perform(House& house, const Stage& e) {
    if (&house == slow) return stages.push_back(e);
    if (gone.contains(&house)) blobs[&house].erase(e.package_digest);
    const bool seen = lacks_once.erase(&house) == 0;
    if (e.package_digest.empty() || (seen && blobs[&house].contains(e.package_digest)))
      return house.give(Staged{e.id, std::string("/work")});
    house.give(Staged{e.id, fail(ErrorCode::not_found, "could not stage: no package"), true});
  }
  void perform(House& house, const LaunchShim& e) { house.give(ShimUp{e.spec.id, {}}); }
  void perform(House& house, const EndShim& e) { house.give(ShimGone{e.id, true}); }

  void answer(House& house, ConnectionId connection, const std::string& body) {
    for (const Stream& s : streams) {
      if (s.other != &house || s.accepted != connection) continue;
      const Stream stream = s;
      auto message = wire::decode<wire::Message>(body);
      message->request = stream.open.request;
      tell(*stream.opener, RelayAnswered{stream.open.connection, wire::encode(*message)});
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
    tell(opener, RelayEnded{part, how, {code, cause, ""}});
  }
  void tell(House& opener, const Event& event) {
    if (&opener == deaf) return unheard.push_back(event);
    opener.give(event);
  }
  void close(Stream& s) {
    const Stream over = s;
    std::erase_if(streams, [&](const Stream& x) { return x.opener == over.opener && x.open.part == over.open.part; });
    if (over.accepted != 0 && over.other->runs()) over.other->give(ConnectionClosed{over.accepted});
  }

  Town town;
  std::vector<House*> houses;
  std::map<House*, std::set<std::string>> blobs;
  std::map<std::pair<House*, ConnectionId>, std::string> partial;
  std::vector<Stream> streams;
  std::set<House*> cut, damaged, full;
  std::set<House*> gone;                 // it was there a moment ago
  std::set<House*> lacks_once;           // its next look while staging is too early
  std::map<House*, std::size_t> chunks;  // it sends no more than so many of each
  const House* deaf = nullptr;           // what streams bring it waits
  std::vector<Event> unheard;
  const House* slow = nullptr;  // at staging
  std::vector<Stage> stages;
  std::size_t breaks_after = 0;  // chunks

 private:
  std::map<House*, std::size_t> done_;
};

}  // namespace dtrain::node
