// pong_probe KEY_FILE CLUSTER IP SEED_IP PERIOD_MS: joins a cluster as a member of its own and asks the seed
// for a pong every PERIOD_MS, beside what membership itself does. One line on stdout per answer: microseconds
// from question to answer, or "lost" for one that did not come within kLost. Ends with its stdin. For
// bench/net_attack.py: real links, real pongs.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include "agent/loop/clock.h"
#include "agent/net/peer_links.h"
#include "common/gossip/membership.h"

using namespace dtrain;

namespace {

constexpr std::uint16_t kPort = 7400;
constexpr Duration kLost = 5s;
constexpr std::uint64_t kOwnSequences = std::uint64_t{1} << 60;  // above membership's own numbers: their pongs do not matter here

struct StderrLog final : Log {
  void write(LogLevel level, std::string_view event, std::span<const LogField> fields) override {
    if (level < LogLevel::warn) return;
    std::fprintf(stderr, "pong_probe: %.*s", static_cast<int>(event.size()), event.data());
    for (const LogField& field : fields)
      std::fprintf(stderr, " %.*s=%s", static_cast<int>(field.key.size()), field.key.data(), field.value.c_str());
    std::fputc('\n', stderr);
  }
};

class Probe {
 public:
  Probe(std::unique_ptr<net::PeerLinks> links, gossip::Self self, wire::Endpoint seed, Duration period, std::uint64_t random, Log& log)
      : links_(std::move(links)),
        self_(self.identity),
        seed_(std::move(seed)),
        period_(period),
        members_(std::move(self), gossip::MembershipOptions{}, Rng(random), log) {}

  void run() {
    step(gossip::Tick{});
    for (;;) {
      const Instant now = loop::read_clocks().boot, due = std::min({members_.deadline(), links_->deadline(), next_});
      const auto wait = std::clamp<std::int64_t>((due - now) / 1ms + 1, 0, 1000);
      pollfd files[2] = {{links_->fd(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
      ::poll(files, 2, static_cast<int>(wait));
      if (files[1].revents != 0) return;
      links_->dispatch(loop::read_clocks().boot, [this](const node::Event& event) {
        if (const auto* gossiped = std::get_if<node::Gossiped>(&event)) take(gossiped->input);
      });
      if (loop::read_clocks().boot >= members_.deadline()) step(gossip::Tick{});
      ask();
    }
  }

 private:
  void take(const gossip::Input& input) {
    if (const auto* received = std::get_if<gossip::Received>(&input)) {
      const auto* pong = std::get_if<wire::Pong>(&received->body);
      if (pong != nullptr && pong->sequence >= kOwnSequences) {
        if (const auto asked = asked_.extract(pong->sequence))
          std::printf("%lld\n", static_cast<long long>((loop::read_clocks().boot - asked.mapped()) / 1us));
        return;
      }
    }
    step(input);
  }

  void step(const gossip::Input& input) {
    gossip::Outputs out;
    members_.step(loop::read_clocks().boot, input, out);
    if (!members_.cluster_id().none() && members_.cluster_id() != cluster_) links_->set_cluster(cluster_ = members_.cluster_id());
    members_.each([this](const gossip::MemberView& view) {
      if (view.identity != nullptr && view.identity->id != self_.id) links_->know(*view.identity);
    });
    if (out.links) links_->keep(*out.links);
    for (const gossip::Send& send : out.sends) links_->send(send);
    for (const gossip::CheckGone& check : out.checks) links_->check_gone(check);
    if (out.resolve_seeds) step(gossip::SeedsResolved{{seed_}});
  }

  void ask() {
    const Instant now = loop::read_clocks().boot;
    for (auto first = asked_.begin(); first != asked_.end() && now - first->second > kLost; first = asked_.erase(first))
      std::printf("lost\n");
    std::fflush(stdout);
    if (now < next_) return;
    next_ = now + period_;
    gossip::Send send;
    members_.each([&](const gossip::MemberView& view) {
      if (view.identity != nullptr && view.identity->address == seed_) send.member = view.identity->id;
    });
    if (send.member.none()) return;  // the seed has not admitted this member yet
    send.to = seed_;
    send.header.cluster = cluster_;
    send.header.sender = self_.id;
    send.header.incarnation = members_.incarnation();
    wire::Ping ping;
    ping.sequence = kOwnSequences + ++count_;
    ping.target = send.member;
    send.body = std::move(ping);
    send.header.type = wire::type_of(send.body);
    asked_.emplace(kOwnSequences + count_, now);
    links_->send(send);
  }

  std::unique_ptr<net::PeerLinks> links_;
  wire::Identity self_;
  wire::Endpoint seed_;
  Duration period_;
  gossip::Membership members_;
  MemberId cluster_;
  Instant next_{};
  std::uint64_t count_ = 0;
  std::map<std::uint64_t, Instant> asked_;
};

int complain(const Error& error) {
  std::fprintf(stderr, "pong_probe: %s\n", error.text().c_str());
  return 69;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: pong_probe KEY_FILE CLUSTER IP SEED_IP PERIOD_MS\n");
    return 64;
  }
  const auto keys = net::read_key_file(argv[1]);
  if (!keys) return complain(keys.error());
  std::random_device random;
  const auto wide = [&random] { return std::uint64_t{random()} << 32 | random(); };
  StderrLog log;
  gossip::Self self;
  self.identity.id = {wide(), wide()};
  self.identity.name = "pong-probe";
  self.identity.address = {argv[3], kPort};
  self.identity.boot_id = "pong-probe";
  self.identity.life = 1;
  self.identity.key_print = net::key_print(keys->pairs.front().public_key);
  self.cluster_name = argv[2];
  self.seeds = {argv[4]};
  auto links = net::PeerLinks::open({self.identity.address, self.identity.id, *keys}, log);
  if (!links) return complain(links.error());
  Probe(std::move(*links), std::move(self), {argv[4], kPort}, std::atoi(argv[5]) * 1ms, wide(), log).run();
}
