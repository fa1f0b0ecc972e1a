#include "tests/sim/membership/trace_text.h"

#include <string_view>

namespace dtrain::sim::membership {
namespace {

constexpr std::string_view kBodies[] = {"join",      "join-reply", "ping",      "pong",           "ping-request", "nack",
                                        "probe-now", "gossip",     "sync-root", "sync-summaries", "sync-rows"};
static_assert(std::size(kBodies) == std::variant_size_v<wire::GossipBody>);
constexpr std::string_view kChanges[] = {
    "alive", "suspect",          "down",   "dead",   "left",   "restarted", "rebooted", "refute", "conflict",
    "fact",  "address-mismatch", "joined", "frozen", "thawed", "stalled"};
constexpr std::string_view kInputs[] = {"received", "dropped",  "link-lost", "link-up", "gone-checked", "send-failed", "seeds-resolved",
                                        "fact",     "identity", "leave",     "remove",  "stop",         "tick",        "others-lost"};
static_assert(std::size(kInputs) == std::variant_size_v<gossip::Input>);
constexpr std::string_view kRumours[] = {"alive", "suspect", "gone", "down", "dead", "left", "fact"};
static_assert(std::size(kRumours) == static_cast<std::size_t>(enum_last(wire::RumourKind{})) + 1);
constexpr std::string_view kAnswers[] = {"refused", "accepts", "silent"};
constexpr std::size_t kShown = 16;  // rumours and rows shown of one message

std::string short_id(const MemberId& id) { return id.text().substr(0, 6); }

void add(std::string& text, const std::vector<wire::Rumour>& rumours) {
  for (std::size_t i = 0; i < rumours.size() && i < kShown; ++i) {
    const wire::Rumour& rumour = rumours[i];
    text += (i == 0 ? " {" : ", ") + std::string(kRumours[static_cast<std::size_t>(rumour.kind)]) + " " +
            (rumour.identity ? rumour.identity->name : short_id(rumour.subject)) + " " + std::to_string(rumour.incarnation);
    if (rumour.fact)
      text += " key " + std::to_string(static_cast<int>(rumour.fact->key)) + " version " + std::to_string(rumour.fact->version) + " " +
              rumour.fact->value;
    if (!rumour.from.none()) text += " by " + short_id(rumour.from);
  }
  if (!rumours.empty()) text += rumours.size() > kShown ? ", ...}" : "}";
}

std::string facts_of(const wire::Row& row) {
  std::string text;
  for (const wire::FactPtr& fact : row.facts)
    if (fact) text += (text.empty() ? " facts " : "/") + std::to_string(fact->version);
  return text;
}

void add(std::string& text, const std::vector<wire::Row>& rows) {
  for (std::size_t i = 0; i < rows.size() && i < kShown; ++i)
    text += (i == 0 ? " [" : ", ") + (rows[i].identity ? rows[i].identity->name : std::string("?")) + " " + wire::to_string(rows[i].state) +
            " " + std::to_string(rows[i].incarnation) + facts_of(rows[i]);
  if (!rows.empty()) text += rows.size() > kShown ? ", ...]" : "]";
}

}  // namespace

std::string text_of(const wire::GossipBody& body) {
  std::string text(kBodies[body.index()]);
  std::visit(
      [&](const auto& b) {
        using B = std::decay_t<decltype(b)>;
        if constexpr (requires { b.rumours; }) add(text, b.rumours);
        if constexpr (requires { b.rows.front().identity; }) add(text, b.rows);
        if constexpr (std::is_same_v<B, wire::Join>) add(text, {b.self});
        if constexpr (std::is_same_v<B, wire::JoinReply>)
          text += b.refused.empty() ? " welcome, accused " + std::to_string(b.accused) : " refused: " + b.refused;
        if constexpr (requires { b.sequence; }) text += " #" + std::to_string(b.sequence);
      },
      body);
  return text;
}

std::string text_of(const gossip::Input& input) {
  std::string text(kInputs[input.index()]);
  if (const auto* received = std::get_if<gossip::Received>(&input)) text = text_of(received->body) + " from " + received->observed_ip;
  if (const auto* dropped = std::get_if<gossip::Dropped>(&input))
    text += std::string(" ") + to_string(dropped->why) + " from " + dropped->from_ip;
  if (const auto* lost = std::get_if<gossip::LinkLost>(&input)) text += " " + lost->to.text();
  if (const auto* up = std::get_if<gossip::LinkUp>(&input)) text += " " + up->to.text();
  if (const auto* checked = std::get_if<gossip::GoneChecked>(&input))
    text += " " + checked->to.text() + " " + std::string(kAnswers[static_cast<std::size_t>(checked->answer)]);
  if (const auto* failed = std::get_if<gossip::SendFailed>(&input)) text += " " + failed->to.text();
  return text;
}

std::string text_of(const gossip::Change& change) {
  return std::string(kChanges[static_cast<std::size_t>(change.kind)]) + " " + change.name + " incarnation " +
         std::to_string(change.incarnation) + (change.detail.empty() ? "" : ": " + change.detail);
}

}  // namespace dtrain::sim::membership
