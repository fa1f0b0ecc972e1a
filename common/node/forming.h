// This machine among the founders of a cluster (cluster/formation.h): passes messages and durable records between Formation
// and the world. Node does what follows from them for the log and for membership; it asks after each step.
//
// Forming continues once the cluster is formed, so that a founder that comes late, or without its disk, hears of the cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/cluster/formation.h"
#include "common/node/context.h"
#include "common/node/part.h"

namespace dtrain::node {

inline constexpr Duration kWaitsSaidEvery = 1s;  // least time between two log lines that say what is waited for

// The record of members, corrected by what this founder promised: the record names the cluster whose log began here,
// and names none whose log was given up. The agent may have ended between the two writes.
gossip::MemberRecord record_of_members(const MemberStart& start);

class Forming final : public Part {
 public:
  explicit Forming(Context& context) : Part(Runs::always), c_(context) {}

  void start(const MemberStart& start);
  void network_up();
  void received(const FormationReceived& e);
  void tick() override;
  Instant deadline() const override;

  void persisted(std::uint64_t ticket) override;
  // Returns what has become durable since the last call.
  std::optional<cluster::formation::Persist> take_durable() { return std::exchange(durable_, std::nullopt); }
  // To be called when Node has done for the log what the persisted record asks for.
  void carried_out() { step(cluster::formation::Persisted{}); }
  // A log is about to begin or to be given up: until that is durable, the present log makes no progress.
  bool log_changes() const { return under_way_ && (under_way_->begin || under_way_->abandon); }

  // To be called when the log that began here has committed an entry, or when a cluster admitted this node.
  void established();
  void admitted(const MemberId& cluster);
  bool begun() const { return takes_part() && formation_->record().started; }
  bool settled() const { return settled_; }  // established() or admitted() was called
  // The cluster whose members this node may ask for admission; none: there is no such cluster yet.
  MemberId cluster_to_join() const;
  // The cluster that this node may belong to, by the founders' answers or because its log began here.
  MemberId cluster_to_enter() const;

  // Carries out `form --without`.
  Status form_without(std::vector<std::string> names);
  // What is waited for, for people; "" if nothing is, or if this machine is no founder.
  std::string waiting_for() const;

 private:
  bool takes_part() const { return formation_.has_value(); }
  std::string mark() const;
  void step(const cluster::formation::Input& input);
  void log_what_is_waited_for();

  Context& c_;
  std::optional<cluster::formation::Formation> formation_;
  std::vector<std::string> founders_;  // names, by seat
  bool begun_ = false;                 // the network is up
  bool settled_ = false;
  std::uint64_t ticket_ = 0;  // of the write under way
  std::optional<cluster::formation::Persist> under_way_, durable_;
  MemberId to_join_;
  std::string said_;
  Instant say_at_{};
};

}  // namespace dtrain::node
