// This machine among the founders of a cluster (cluster/formation.h): carries between Formation and the world what they say
// to each other and what must be durable. What follows for the log and for membership is Node's, who asks after each step.
//
// It stays when the cluster is formed: a founder that comes late, or without its disk, is told of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/cluster/formation.h"
#include "common/node/context.h"

namespace dtrain::node {

inline constexpr Duration kWaitsSaidEvery = 1s;  // least time between two lines that say what is waited for

// What the record of members says once what was promised is known: a log that began here names the cluster, and one that was
// given up does so no more, whatever else could be written before the agent ended.
gossip::MemberRecord record_of_members(const MemberStart& start);

class Forming {
 public:
  explicit Forming(Context& context) : c_(context) {}

  void start(const MemberStart& start);
  void network_up();
  void received(const FormationReceived& e);
  void tick();
  Instant deadline() const;

  // Whether a Persist with that ticket is of this part. Its answer: what is durable now, if it was the one under way.
  static bool owns(std::uint64_t ticket) { return (ticket & kTickets) != 0; }
  std::optional<cluster::formation::Persist> persisted(std::uint64_t ticket);
  // Node has done what that means for the log.
  void carried_out() { step(cluster::formation::Persisted{}); }
  // A log is about to begin or to go: until that is durable the one that is here stands still.
  bool log_changes() const { return under_way_ && (under_way_->begin || under_way_->abandon); }

  // The log that began here has committed an entry; a cluster took this node in.
  void established();
  void admitted(const MemberId& cluster);
  bool begun() const { return takes_part() && formation_->record().started; }
  bool settled() const { return settled_; }  // either was said
  // Whose members this node may ask to be admitted by; none: nobody.
  MemberId cluster_to_join() const;
  // What it may belong to by their answers: that, or what began here.
  MemberId cluster_to_enter() const;

  // `form --without`.
  Status form_without(std::vector<std::string> names);
  // What is waited for, for people; "" when nothing is, or this machine takes no part.
  std::string waiting_for() const;

 private:
  static constexpr std::uint64_t kTickets = std::uint64_t{1} << 63;  // those of the log count from 1

  bool takes_part() const { return formation_.has_value(); }
  std::string mark() const;
  void step(const cluster::formation::Input& input);
  void say_what_is_waited_for();

  Context& c_;
  std::optional<cluster::formation::Formation> formation_;
  std::vector<std::string> founders_;  // by seat
  bool begun_ = false;                 // the network is up
  bool settled_ = false;
  std::uint64_t tickets_ = 0;
  std::optional<cluster::formation::Persist> under_way_;
  MemberId to_join_;
  std::string said_;
  Instant say_at_{};
};

}  // namespace dtrain::node
