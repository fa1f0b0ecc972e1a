// The simulated users: they submit, watch and change jobs over control connections, encoding requests and decoding
// replies exactly as dtrainctl does, and check each answer (type, encoding, internal errors).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/rng.h"
#include "common/node/event.h"
#include "common/wire/control.h"
#include "tests/sim/job_book.h"
#include "tests/sim/timeline.h"

namespace dtrain::sim {

// One request that may still be answered.
struct SentRequest {
  wire::MessageType type = wire::MessageType::none;
  std::uint64_t request = 0;
  std::uint64_t tag = 0;       // submit
  bool anew = false;           // submit: no repetition of an earlier request
  wire::ActionRequest action;  // action
  wire::DrainRequest drain;    // drain
  bool answered = false;       // at least once
  bool observer = false;       // asked by the observer, not by a user
  std::size_t host = 0;        // whose agent was asked
  std::uint64_t number = 0;    // of its connection, never used again
  std::uint64_t index = 0;     // once answered: of the newest entry in the ledger of who answers; 0: not known
  Instant at{};
};

class SimClient {
 public:
  struct Hooks {
    std::function<std::size_t()> choose_host;                                 // whose agent a user asks
    std::function<std::size_t()> newest_host;                                 // and the observer: the one that knows most
    std::function<void(std::size_t host, const std::string& digest)> upload;  // a package, before the submit
    std::function<bool(std::size_t host)> agent_listens;                      // a connection can be made
    std::function<void(std::size_t host, node::Event)> post;
    std::function<void(const SentRequest&)> asked;
    std::function<void(const SentRequest&, const wire::Message&)> replied;
    std::function<void(const wire::JobsReply&, std::uint64_t index)> looked;  // an answer to the observer
    std::function<void(std::string_view invariant, std::string what)> complain;
  };
  SimClient(Timeline& timeline, Rng rng, JobBook& book, Hooks hooks);

  void act();         // one random action of a user
  void observe();     // asks for all jobs; the answer goes to hooks.looked
  void cancel_all();  // every job that was not final at last look
  // `anew`: not as a repetition of an earlier request for that file.
  void submit(job::JobSpec spec, std::uint64_t tag, bool replace, bool anew = false);
  void action(wire::ActionRequest request);
  void drain(wire::DrainRequest request);                       // by an operator
  void recover_quorum(std::size_t host, bool force);            // likewise, at that host
  void forget_node(std::size_t host, const std::string& node);  // likewise
  // More jobs at a time, which take more of the `hosts`: some have to wait, or make room.
  void set_dynamic() { dynamic_ = true; }
  void set_keeping() { keeping_ = true; }
  void set_leaving() { leaving_ = true; }
  void set_rehearsing() { rehearsing_ = true; }  // half of the jobs need a later version of the ledger
  // Half of the jobs take most of the `hosts`, go on with fewer, and grow again.
  void set_elastic(std::uint32_t hosts) { elastic_ = hosts; }
  void set_hungry(std::uint32_t hosts) { hungry_ = hosts; }
  // Some jobs have many tasks, up to several on each of the `hosts`.
  void set_many(std::uint32_t hosts) { many_ = hosts; }
  std::uint64_t next_tag() { return ++tags_; }

  // `index`: of the newest entry in the ledger of who answers.
  void receive(node::ConnectionId connection, const std::string& body, std::uint64_t index);
  void closed(node::ConnectionId connection) { open_.erase(connection); }  // by the agent
  void agent_died(std::size_t host);                                       // every connection to it is gone; lost submits are tried again
  const std::map<node::ConnectionId, SentRequest>& open() const { return open_; }

  static bool streams(wire::MessageType type);  // answers until the client goes

 private:
  bool reached(std::size_t host);  // the next deed is done at this one
  template <class T>
  node::ConnectionId send(SentRequest sent, const T& payload);
  void hang_up(node::ConnectionId connection);
  void act_on_job(const KnownJob& job);
  void query(const KnownJob* job);
  void submit_something();
  void submit_again(const std::string& name);
  void check_payload(const SentRequest& sent, const wire::Message& message, std::uint64_t index);
  void on_submitted(const SentRequest& sent, const wire::Message& message);
  const KnownJob* random_job_of_book();
  bool asks_for_gpus(const std::string& name, const std::string& role) const;

  Timeline& timeline_;
  Rng rng_;
  JobBook& book_;
  Hooks hooks_;
  std::map<node::ConnectionId, SentRequest> open_;
  std::set<std::uint64_t> unacknowledged_;  // tags of submits that got no answer
  node::ConnectionId connections_ = 0;      // of all hosts; no node takes such numbers (connections.h)
  std::string removed_;                     // the job whose removal was asked for last; "": submitted again since
  std::uint64_t tags_ = 0, received_ = 0;
  std::size_t host_ = 0;  // of the deed under way
  bool dynamic_ = false, keeping_ = false, leaving_ = false, rehearsing_ = false;
  std::uint32_t hungry_ = 0;              // the number of hosts; 0: not
  std::uint32_t many_ = 0, elastic_ = 0;  // likewise
};

}  // namespace dtrain::sim
