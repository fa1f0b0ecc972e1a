// Findings about the connections to the other members and back.
#include <algorithm>
#include <set>

#include "common/node/doctor.h"
#include "common/node/words.h"

namespace dtrain::node {
namespace {

using Answer = Contact::Answer;

std::string seconds_text(Duration d) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(d < Duration{} ? -d : d).count();
  return std::to_string(ms / 1000) + "." + std::to_string(ms % 1000 / 100) + " s";
}

std::string lane(const Contact& contact) { return contact.bulk ? "bulk" : "gossip"; }

std::string cause_of(const Contact& contact) {
  switch (contact.answer) {
    case Answer::refused: return "the connection is refused";
    case Answer::silent: return "there is no answer";
    case Answer::failed: return contact.cause;
    default: return "";
  }
}

std::string open_ports(const wire::Endpoint& at, const std::string& node) {
  return "let TCP ports " + std::to_string(at.port) + " and " + std::to_string(at.port + 1) + " through to " + node +
         ": in its firewall (nft list ruleset) and between the hosts";
}

struct Ward {
  const Examination& seen;
  Findings findings;
  const std::string& here() const { return seen.terms.name; }
  void add(const char* check, const std::string& node, const char* level, std::string finding, std::string cure = "") {
    findings.push_back({check, node, level, std::move(finding), std::move(cure)});
  }
};

// Returns false if no other check of this peer makes sense.
bool check_state(Ward& ward, const PeerReport& peer) {
  const bool listens = std::ranges::any_of(ward.seen.contacts, [&](const Contact& contact) {
    return contact.peer == peer.name && !contact.bulk && contact.answer == Answer::accepts;
  });
  const std::string compare =
      "compare the key files of both (sha256sum /etc/dtrain/cluster.key) and cluster.name; copy the cluster's key to the one that has "
      "another, and restart its agent; net.refused in the logs of both says more";
  if (peer.state == wire::MemberState::down && listens) {
    ward.add("reach", peer.name, "bad",
             "an agent listens at " + peer.address.text() + ", and it and " + ward.here() +
                 " do not understand each other: they have different keys, belong to different clusters, or it was begun just now",
             compare);
    return false;
  }
  if (peer.state == wire::MemberState::down) {
    ward.add("reach", peer.name, "bad", "its agent is down, and its host is up",
             "start it there: systemctl start dtraind; journalctl -u dtraind says why it ended");
    return false;
  }
  if (peer.state == wire::MemberState::dead) {
    ward.add("reach", peer.name, "bad",
             "it gives no sign of life at " + peer.address.text() +
                 (listens ? ", though its port takes connections: its agent hangs, or has another key" : ""),
             (listens ? "restart its agent; where that does not help, " + compare
                      : std::string("see whether the host is up and its network works, and start its agent")) +
                 "; if it is gone for good: dtrainctl forget-node " + peer.name);
    return false;
  }
  return true;
}

void check_contacts(Ward& ward, const PeerReport& peer, bool& well) {
  for (const Contact& contact : ward.seen.contacts) {
    if (contact.peer != peer.name || contact.answer == Answer::accepts || contact.answer == Answer::not_tried) continue;
    well = false;
    ward.add("reach", peer.name, "bad",
             ward.here() + " cannot connect to " + contact.to.text() + " (" + lane(contact) + "): " + cause_of(contact),
             open_ports(peer.address, peer.name));
  }
}

void check_sight(Ward& ward, const PeerReport& peer, bool& well) {
  const wire::PeerSight& sight = peer.reply->sight;
  const ExamTerms& own = ward.seen.terms;
  for (const auto& [cause, lane_name, port] :
       {std::tuple{sight.gossip, "gossip", own.port}, {sight.bulk, "bulk", static_cast<std::uint16_t>(own.port + 1)}}) {
    if (cause.empty()) continue;
    well = false;
    ward.add("reach", ward.here(), "bad",
             peer.name + " cannot connect to " + wire::Endpoint{own.advertise, port}.text() + " (" + lane_name + "): " + cause,
             open_ports({own.advertise, own.port}, ward.here()));
  }
  const std::string advertised = wire::Endpoint{own.advertise, own.port}.text();
  if (!sight.address.empty() && sight.address != advertised)
    ward.add("addresses", peer.name, "warn",
             peer.name + " knows " + ward.here() + " at " + sight.address + ", which advertises " + advertised,
             "it hears of a new address within a minute; if not, restart the agent of " + peer.name);
  const auto at_home = [&](const std::string& ip) { return ip == own.advertise || ip == own.task_address; };
  if (!sight.named.empty() && std::ranges::none_of(sight.named, at_home))
    ward.add("names", peer.name, "warn",
             "on " + peer.name + " the name " + ward.here() + " means " + joined(sight.named) + ", and the host is " + own.advertise,
             "correct /etc/hosts there, or the name server");
}

void check_name(Ward& ward, const PeerReport& peer) {
  for (const Lookup& look : ward.seen.lookups) {
    if (look.of != Lookup::Of::peer || look.name != peer.name || look.addresses.empty()) continue;
    if (std::ranges::find(look.addresses, peer.address.ip) != look.addresses.end()) continue;
    ward.add("names", ward.here(), "warn",
             "on " + ward.here() + " the name " + peer.name + " means " + joined(look.addresses) + ", and the host is " + peer.address.ip,
             "correct /etc/hosts here, or the name server");
  }
}

// The clock that most hosts agree with: with three or more the median, otherwise the clock here.
Duration common_time(const std::vector<PeerReport>& peers) {
  std::vector<Duration> ahead{Duration{}};
  for (const PeerReport& peer : peers)
    if (peer.reply) ahead.push_back(peer.ahead);
  if (ahead.size() < 3) return Duration{};
  std::ranges::sort(ahead);
  // With an even number, the value between the middle two that is nearest to the clock here.
  const Duration low = ahead[(ahead.size() - 1) / 2], high = ahead[ahead.size() / 2];
  return std::max(low, std::min(high, Duration{}));
}

// `other`: the only other host, whose clock may be the wrong one; "": there are several.
void judge_clock(Ward& ward, const std::string& node, Duration off, Duration doubt, const std::string& other) {
  const Duration sure = (off < Duration{} ? -off : off) - doubt;
  if (sure <= kClockWarn) return;
  ward.add("clock", node, sure > kClockBad ? "bad" : "warn",
           "the clock of " + node + " is " + seconds_text(off) + (off < Duration{} ? " behind " : " ahead of ") +
               (other.empty() ? "those of most members" : "that of " + other) + " (give or take " + seconds_text(doubt) +
               "): times in logs and of files mislead, and certificates may be refused",
           (other.empty() ? "" : "see which of the two is wrong (date); ") + std::string("set it and keep it right on ") +
               (other.empty() ? node : "that host") + ": systemctl enable --now systemd-timesyncd, or chrony");
}

void check_clocks(Ward& ward, const std::vector<PeerReport>& peers) {
  const Duration common = common_time(peers);
  Duration least = Duration::max();
  std::size_t known = 0;
  for (const PeerReport& peer : peers)
    if (peer.reply) least = std::min(least, peer.doubt), ++known;
  if (known == 0) return;
  const std::size_t before = ward.findings.size();
  judge_clock(ward, ward.here(), -common, least, "");
  for (const PeerReport& peer : peers)
    if (peer.reply) judge_clock(ward, peer.name, peer.ahead - common, peer.doubt, known < 2 ? ward.here() : "");
  if (ward.findings.size() == before)
    ward.add("clock", ward.here(), "ok",
             "within " + seconds_text(kClockWarn) + " of " + std::to_string(known) + (known == 1 ? " other" : " others"));
}

void check_versions(Ward& ward, const std::string& version, const std::vector<PeerReport>& peers) {
  std::set<std::string> others;
  std::vector<std::string> names;
  for (const PeerReport& peer : peers) {
    if (!wire::in_service(peer.state) || peer.version.empty() || peer.version == version) continue;
    others.insert(peer.version);
    names.push_back(peer.name);
  }
  if (names.empty()) return;
  ward.add("version", ward.here(), "warn",
           "agents of other versions than " + version + ", which runs here: " + joined(names) + " (" +
               joined({others.begin(), others.end()}) + ")",
           "upgrade all hosts to one version; running tasks are not touched by that");
}

}  // namespace

Findings examine_peers(const Examination& seen, const std::string& version, const std::vector<PeerReport>& peers) {
  Ward ward{seen, {}};
  std::size_t unasked = 0;
  for (const PeerReport& peer : peers) {
    if (!check_state(ward, peer)) continue;
    bool well = true;
    if (peer.state == wire::MemberState::suspect)
      ward.add("reach", peer.name, "warn", "it has been silent, and is suspected to be gone",
               "see whether its host is overloaded or its network is lost");
    check_contacts(ward, peer, well);
    check_name(ward, peer);
    if (peer.error && peer.error->code == ErrorCode::limit) {
      ward.add("reach", peer.name, "warn", "it was not asked: " + peer.error->message, "run dtrainctl doctor again in a moment");
    } else if (peer.error) {
      // The peer answers over connections that it opens itself.
      const std::string back = "see whether its agent works (journalctl -u dtraind there); else " +
                               open_ports({ward.seen.terms.advertise, ward.seen.terms.port}, ward.here());
      ward.add("reach", peer.name, "bad", "its agent does not answer " + ward.here() + ": " + peer.error->message,
               well ? back : open_ports(peer.address, peer.name));
    } else if (!peer.reply) {
      ++unasked;
    } else {
      check_sight(ward, peer, well);
      if (well) ward.add("reach", peer.name, "ok", "both ports of " + peer.address.ip + " answer, and it reaches " + ward.here());
      for (const wire::Finding& finding : peer.reply->findings) ward.findings.push_back(finding);
    }
  }
  check_clocks(ward, peers);
  check_versions(ward, version, peers);
  if (unasked != 0)
    ward.add("reach", ward.here(), "warn", std::to_string(unasked) + " members were not asked for want of time",
             "run dtrainctl doctor on some of them; dtrainctl nodes shows who is alive");
  return std::move(ward.findings);
}

wire::PeerSight sight_of(const Examination& seen, const ExamPeer& asker) {
  wire::PeerSight sight;
  sight.address = asker.address.text();
  for (const Contact& contact : seen.contacts)
    if (contact.peer == asker.name) (contact.bulk ? sight.bulk : sight.gossip) = cause_of(contact);
  for (const Lookup& look : seen.lookups)
    if (look.of == Lookup::Of::peer && look.name == asker.name) sight.named = look.addresses;
  return sight;
}

}  // namespace dtrain::node
