#include "tests/sim/quorum_loss.h"

#include <algorithm>
#include <tuple>

#include "tests/sim/cluster_world.h"

namespace dtrain::sim {
namespace {

// From the loss to the last one's return, when all goes well; it begins only while there is that much time.
constexpr Duration kTakes = 80s;
constexpr Duration kTryAgain = 500ms, kLookOften = 20ms, kLongestWait = 15s, kLossLookEvery = 50ms, kLongestLossCut = 2s, kOperates = 500ms;
constexpr Duration kLongestDoubt = 4s, kAskEvery = 1s, kLongestAlone = 20s, kLongestBetween = 8s;
constexpr std::uint32_t kPatience = 30;  // refusals, before the operator forces it

// How far a disk's log reaches, as elections compare it.
using Reach = std::tuple<std::uint64_t, std::uint64_t>;
Reach reach_of(const raft::Stored& replica) {
  if (!replica.log.empty()) return {replica.log.back().term, replica.log.back().index};
  return replica.snapshot ? Reach{replica.snapshot->term, replica.snapshot->index} : Reach{};
}

wire::Configuration configuration_of(const raft::Stored& replica) {
  for (auto entry = replica.log.rbegin(); entry != replica.log.rend(); ++entry)
    if (entry->kind == raft::EntryKind::configuration) return wire::decode_configuration(entry->payload).value_or(wire::Configuration{});
  if (!replica.snapshot) return {};
  return wire::decode_configuration(replica.snapshot->configuration).value_or(wire::Configuration{});
}

// Of what must not run twice.
bool not_begun(const cluster::JobRecord& job, const cluster::TaskRecord& task) {
  const TaskId& id = task.place.task;
  return job::must_not_run_twice(job.spec, id) && task.granted_attempt < task.first_attempt;
}

}  // namespace

QuorumLoss::QuorumLoss(ClusterWorld& world, Rng rng, Instant until) : world_(world), rng_(rng), until_(until) {}

void QuorumLoss::begin() {
  if (until_ - world_.now() <= kTakes) return;
  world_.timeline().after(upto(until_ - world_.now() - kTakes), [this] { strike(); });
}

void QuorumLoss::strike() {
  if (world_.now() + kTakes > until_) return;
  if (!choose()) return world_.timeline().after(kTryAgain, [this] { strike(); });
  if (std::exchange(tried_, true) || rng_.chance(1, 2)) return watch_cut(world_.now());
  lie_in_wait(world_.now() + kLongestWait);
}

// The survivors are cut off when they know where tasks are to begin that must not run twice, and not that they do.
void QuorumLoss::lie_in_wait(Instant until) {
  if (world_.now() >= until) return strike();
  if (!about_to_begin()) return world_.timeline().after(kLookOften, [this, until] { lie_in_wait(until); });
  cut_ = true;
  world_.network().part(away_, true);
  world_.users_rest(true);
  world_.note(victims_.front().host, "the other voters are cut off");
  watch_cut(world_.now() + kLongestLossCut);
}

bool QuorumLoss::about_to_begin() const {
  const auto survivor = furthest();
  if (!survivor || !world_.host(*survivor).agent_runs()) return false;
  for (const auto& [id, job] : world_.host(*survivor).node()->ledger().state().jobs) {
    bool any = false, elsewhere = false;
    for (const auto& known : job.tasks) {
      const auto& t = known.second;
      const bool goes = std::ranges::any_of(victims_, [&](const Victim& v) { return world_.host(v.host).id() == t.place.node; });
      elsewhere = elsewhere || !(t.ended || goes);
      any = any || (!t.ended && goes && not_begun(job, t));
    }
    if (any && !elsewhere) return true;
  }
  return false;
}

// Who goes: of the voters that the coordinator's log has, a majority with itself.
bool QuorumLoss::choose() {
  victims_.clear();
  away_.reset();
  for (std::size_t i = 0; i < world_.hosts() && victims_.empty(); ++i)
    if (world_.host(i).agent_runs() && world_.host(i).node()->coordinates()) victims_.push_back({i, {}});
  if (victims_.empty()) return false;
  const wire::Configuration configuration = configuration_of(world_.host(victims_.front().host).disk().stored().replica);
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < world_.hosts(); ++i)
    if (i != victims_.front().host && world_.host(i).votes_in(configuration)) others.push_back(i);
  if (others.size() < 2) return false;
  for (std::size_t wanted = (others.size() + 1) / 2; wanted != 0; --wanted) {
    const auto next = others.begin() + static_cast<std::ptrdiff_t>(rng_.below(others.size()));
    victims_.push_back({*next, {}});
    others.erase(next);
  }
  for (Victim& victim : victims_) {
    victim.loss = static_cast<Loss>(rng_.below(6) < 2 ? rng_.below(2) : 2 + rng_.below(2));
    away_.set(victim.host);
  }
  return true;
}

// Until something runs of which the survivors do not know that it began, or for a while.
void QuorumLoss::watch_cut(Instant until) {
  const bool may = may_go();
  if (may && (!cut_ || shows_more() || world_.now() >= until)) return go();
  if (world_.now() < until) return world_.timeline().after(kLossLookEvery, [this, until] { watch_cut(until); });
  if (std::exchange(cut_, false)) {
    world_.network().part(away_, false);
    world_.users_rest(false);
  }
  world_.timeline().after(kTryAgain, [this] { strike(); });
}

bool QuorumLoss::may_go() const {
  const auto survivor = furthest();
  if (!survivor || !world_.host(*survivor).agent_runs()) return false;
  if (std::get<1>(reach_of(world_.host(*survivor).disk().stored().replica)) < world_.acknowledged()) return false;
  const cluster::Ledger& known = world_.host(*survivor).node()->ledger();
  for (const Victim& victim : victims_) {
    const node::Node* node = world_.host(victim.host).node();
    if (node == nullptr || world_.host(victim.host).away()) return false;
    for (const auto& [id, job] : node->ledger().state().jobs) {
      const cluster::JobRecord* same = known.find(id);
      for (const auto& [task, t] : job.tasks) {
        if (t.ended || t.place.node == world_.host(*survivor).id()) continue;
        const auto there = same == nullptr || same->generation != job.generation ? job.tasks.end() : same->tasks.find(task);
        if (same == nullptr || same->generation != job.generation || there == same->tasks.end() ||
            there->second.place.node != t.place.node || there->second.ended)
          return false;
      }
    }
  }
  return true;
}

// Something runs on a host that goes of which the survivors do not know that it was begun.
bool QuorumLoss::shows_more() const {
  const cluster::Ledger& known = world_.host(*furthest()).node()->ledger();
  for (const Victim& victim : victims_)
    for (const auto& [id, shim] : world_.host(victim.host).tasks().shims()) {
      const cluster::JobRecord* job = shim.running ? known.find(id.job) : nullptr;
      if (job == nullptr || job->generation != id.generation) continue;
      const auto task = job->tasks.find(id.task);
      if (task != job->tasks.end() && not_begun(*job, task->second)) return true;
    }
  return false;
}

void QuorumLoss::go() {
  static constexpr const char* kWords[] = {"the agent goes", "nobody reaches the host", "the host goes down", "the disk is lost"};
  const bool run_on = cut_ && rng_.chance(2, 3);  // what the survivors do not know of is to be there a while
  for (Victim& victim : victims_) {
    if (run_on) victim.loss = Loss::reached;
    world_.note(victim.host, std::string(to_string(Fault::quorum_lost)) + ": " + kWords[static_cast<std::size_t>(victim.loss)]);
    SimHost& host = world_.host(victim.host);
    host.go_away(victim.loss >= Loss::boot);
    if (victim.loss == Loss::reached) world_.network().host_silent(victim.host);
    if (victim.loss == Loss::disk) host.lose_disk();
  }
  if (std::exchange(cut_, false)) {
    world_.network().part(away_, false);
    world_.users_rest(false);
  }
  world_.network().set_seeds(world_.hosts());  // whoever comes back empty asks those that are there
  ask_at_ = world_.now() + upto(kLongestDoubt);
  operate();
}

void QuorumLoss::operate() {
  world_.cluster_disturbed_until(world_.now() + kOperates);
  for (std::size_t i = 0; i < back_; ++i)
    if (!followed(victims_[i].host)) world_.host(victims_[i].host).disturbed_until(world_.now() + kOperates);
  if (world_.history() == 1) ask();
  else bring_back();
  const bool over = back_ == victims_.size() && std::ranges::all_of(victims_, [this](const Victim& v) { return followed(v.host); });
  if (!over) world_.timeline().after(kOperates, [this] { operate(); });
}

void QuorumLoss::ask() {
  const auto survivor = furthest();
  if (world_.now() < ask_at_ || !survivor || !world_.host(*survivor).agent_runs()) return;
  ask_at_ = world_.now() + kAskEvery;
  world_.note(*survivor, "an operator asks for recover-quorum");
  world_.client().recover_quorum(*survivor, refused_ >= kPatience);
}

void QuorumLoss::answered(const SentRequest& sent, const wire::Message& message) {
  if (sent.type == wire::MessageType::recover_quorum && message.type == wire::MessageType::error) ++refused_;
}

// One after the other, each when the one before has followed, the first when the other survivors have: with one of these it would be a
// majority of the older history (five hosts, seed 14). Who has nothing may come at any time.
void QuorumLoss::bring_back() {
  for (std::size_t i = 0; i < world_.hosts(); ++i)
    if (!away_.test(i) && world_.host(i).of_older_history()) return;
  if (!std::exchange(alone_, true)) back_at_ = world_.now() + upto(kLongestAlone);
  if (back_ == victims_.size() || (world_.now() < back_at_ && world_.now() < until_)) return;
  if (back_ != 0 && victims_[back_ - 1].loss != Loss::disk && !followed(victims_[back_ - 1].host)) return;
  const Victim& next = victims_[back_++];
  back_at_ = world_.now() + upto(kLongestBetween);
  const auto survivor = furthest();
  if (next.loss == Loss::disk && survivor && rng_.chance(1, 2)) world_.client().forget_node(*survivor, world_.host(next.host).name());
  world_.host(next.host).come_back();
}

bool QuorumLoss::followed(std::size_t host) const {
  const SimHost& view = world_.host(host);
  return view.agent_runs() && view.disk().stored().replica.hard.history.number == world_.history();
}

std::optional<std::size_t> QuorumLoss::furthest() const {
  std::optional<std::size_t> found;
  const auto reach = [this](std::size_t host) {
    const raft::Stored& replica = world_.host(host).disk().stored().replica;
    return std::pair(replica.hard.history.number, reach_of(replica));
  };
  for (std::size_t i = 0; i < world_.hosts(); ++i)
    if (!away_.test(i) && (!found || reach(*found) < reach(i))) found = i;
  return found;
}

}  // namespace dtrain::sim
