// What a founder receives and sends; formation_decide.cpp decides.
#include "common/cluster/formation.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/cluster/council.h"
#include "common/wire/codec.h"

namespace dtrain::cluster::formation {

namespace {

constexpr std::size_t kNameBytes = wire::kFoundersBytes / wire::kMostFounders - 1;

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ",") + name;
  return out;
}

Error cannot_form(const std::string& cause) {
  return {ErrorCode::invalid, "could not form a cluster: " + cause,
          "name the same founders in `join` on all of them, this machine included, and their number in `expect`"};
}

}  // namespace

Status check_founders(const std::vector<std::string>& founders, const std::string& name, std::uint32_t expect) {
  const std::set<std::string> distinct(founders.begin(), founders.end());
  if (distinct.size() != founders.size()) return fail(cannot_form("a founder is named twice"));
  if (distinct.size() > wire::kMostFounders)
    return fail(cannot_form("more than " + std::to_string(wire::kMostFounders) + " founders are named"));
  if (expect != 0 && expect != distinct.size())
    return fail(cannot_form("`expect` is " + std::to_string(expect) + ", and " + std::to_string(distinct.size()) + " founders are named"));
  if (!distinct.contains(name)) return fail(cannot_form("'" + name + "' is not among the founders"));
  for (const std::string& one : distinct)
    if (one.empty() || one.size() > kNameBytes ||
        std::any_of(one.begin(), one.end(), [](char c) { return c <= ' ' || c > '~' || c == ','; }))
      return fail(cannot_form("'" + one + "' is no name of a machine"));
  return {};
}

std::string Record::encode() const { return wire::encode(*this); }

Result<Record> Record::decode(std::string_view bytes) {
  auto record = wire::decode<Record>(bytes);
  if (!record) return record;
  bool good = record->withdrawn.size() <= wire::kMostWithdrawn && !(record->started && record->promise.none()) &&
              wire::defect(record->promise) == nullptr;
  for (Founding& founding : record->withdrawn) good = good && !founding.none() && wire::defect(founding) == nullptr;
  if (!good) return fail(ErrorCode::damaged, "could not read the record of formation: it contradicts itself");
  return record;
}

raft::History history_of(const Founding& founding) { return {1, founding.cluster}; }

raft::Configuration configuration_of(const Founding& founding) {
  raft::Configuration configuration;
  std::vector<MemberId>& voters = configuration.voters;
  for (const Founder& founder : founding.members) voters.push_back(founder.id);
  std::sort(voters.begin(), voters.end());
  const std::size_t size = std::min<std::size_t>(council_size(voters.size()), voters.size());
  configuration.learners.assign(voters.begin() + static_cast<std::ptrdiff_t>(size), voters.end());
  voters.resize(size);
  return configuration;
}

Formation::Formation(Self self, FormationOptions options, Rng rng)
    : id_(self.id),
      names_(std::move(self.founders)),
      record_(std::move(self.record)),
      cluster_(self.cluster),
      options_(std::move(options)),
      rules_(options_.broken_rule),
      rng_(rng) {
  CHECK(check_founders(names_, self.name, 0));
  std::sort(names_.begin(), names_.end());
  founders_ = joined(names_);
  seat_ = static_cast<Seat>(std::find(names_.begin(), names_.end(), self.name) - names_.begin());
  peers_.resize(names_.size());
  established_ = !cluster_.none();
  if (cluster_.none() && record_.started) cluster_ = record_.promise.cluster;
}

void Formation::step(Instant now, const Input& input, Outputs& out) {
  now_ = begun_ ? std::max(now, now_) : now;
  out_ = &out;
  if (!std::exchange(begun_, true)) new_round();
  std::visit([this](const auto& what) { act(what); }, input);
  if (!mute_ && !persisting_) decide();
  if (!mute_ && !persisting_ && now_ >= next_ask_) ask();
  out_ = nullptr;
}

Instant Formation::deadline() const {
  if (!begun_) return Instant{};
  return mute_ || persisting_ || established_ ? kNever : next_ask_;
}

// A member that answers a question of this round was up after the round began.
void Formation::new_round() {
  round_ = rng_.next() | 1;
  for (Peer& peer : peers_) peer.answers = false;
  next_ask_ = now_;
}

void Formation::ask() {
  next_ask_ = now_ + options_.ask_every;
  if (established_) return;
  for (Seat seat = 0; seat < peers_.size(); ++seat) send(seat, true);
  out_->join = cluster_to_join();
}

void Formation::send(Seat to, bool asks) {
  if (to != seat_) out_->sends.push_back({to, report(to, asks)});
}

FormationReport Formation::report(Seat to, bool asks) const {
  FormationReport report;
  report.founders = founders_;
  report.seat = seat_;
  report.asks = asks;
  report.round = round_;
  report.echo = peers_[to].round;
  report.promise = record_.promise;
  report.cluster = cluster_;
  report.established = established_;
  report.doubts = doubts_;
  report.without = own_wish_;
  for (const Founding& founding : record_.withdrawn) report.withdrawn.push_back(founding.cluster);
  return report;
}

void Formation::act(const Received& received) {
  const FormationReport& report = received.report;
  if (report.founders != founders_) {
    others_founders_ = report.founders;
    others_named_ = now_;
    return;
  }
  if (mute_ || report.seat >= peers_.size() || report.seat == seat_ || received.sender == id_) {
    ++counters_.dropped;
    return;
  }
  for (const MemberId& cluster : report.withdrawn) {
    const bool ours =
        cluster == record_.promise.cluster || std::any_of(record_.withdrawn.begin(), record_.withdrawn.end(),
                                                          [&](const Founding& founding) { return founding.cluster == cluster; });
    if (ours) withdrawn_by_[cluster].insert(received.sender);
  }
  Peer& peer = peers_[report.seat];
  peer.round = report.round;
  if (report.echo == round_) {
    peer.holder = received.sender;
    peer.report = report;
    peer.heard = now_;
    peer.answers = true;
  }
  // A report is not sent before it is durable.
  if (report.asks && !(persisting_ && with(Rule::promise_durable))) send(report.seat, false);
}

void Formation::act(const Persisted&) {
  if (!std::exchange(persisting_, false)) return;
  next_ask_ = now_;
}

void Formation::act(const Admitted& admitted) {
  cluster_ = admitted.cluster;
  established_ = true;
}

void Formation::commit(std::optional<Founding> begin, bool abandon) {
  CHECK(!persisting_);
  persisting_ = true;
  new_round();
  doubts_ = proposer_gone_ = false;
  std::erase_if(withdrawn_by_, [this](const auto& entry) {
    return entry.first != record_.promise.cluster &&
           std::none_of(record_.withdrawn.begin(), record_.withdrawn.end(),
                        [&](const Founding& founding) { return founding.cluster == entry.first; });
  });
  out_->persist = Persist{record_, std::move(begin), abandon};
  if (!with(Rule::promise_durable)) ask();
}

Status Formation::form_without(const std::vector<std::string>& names) {
  const std::string what = "could not form a cluster without " + joined(names);
  if (!cluster_.none()) return fail(ErrorCode::refused, what + ": this machine belongs to cluster " + cluster_.text().substr(0, 8));
  std::set<Seat> seats;
  for (const std::string& name : names) {
    const auto at = std::find(names_.begin(), names_.end(), name);
    if (at == names_.end()) return fail(ErrorCode::not_found, what + ": '" + name + "' is no founder", "the founders are " + founders_);
    const auto seat = static_cast<Seat>(at - names_.begin());
    if (seat == seat_) return fail(ErrorCode::invalid, what + ": that is this machine");
    if (fresh(seat)) return fail(ErrorCode::refused, what + ": it is there", "wait; `status` says for what");
    seats.insert(seat);
  }
  if (seats.empty()) return fail(ErrorCode::invalid, "could not form a cluster: no founder was named to go without");
  if ((names_.size() - seats.size()) * 2 <= names_.size() && with(Rule::majority_without))
    return fail(ErrorCode::refused, what + ": the others are no majority of the " + std::to_string(names_.size()) + " founders",
                "bring one of them up, or begin a new cluster with --found on one machine that shall have no others");
  own_wish_.assign(seats.begin(), seats.end());
  next_ask_ = now_;
  return {};
}

}  // namespace dtrain::cluster::formation
