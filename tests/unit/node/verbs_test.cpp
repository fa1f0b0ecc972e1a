// Who may ask what, and where: the rows of all verbs, which stand beside their handlers, with the numbers on the wire, in one table for
// whoever reviews a change of them.
#include "common/node/verbs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "common/node/access.h"

namespace dtrain::node {
namespace {

std::string text(const Rule& rule) {
  static constexpr const char* kNeeds[] = {"nothing", "no old copy", "a copy", "a current copy", "to coordinate"};
  static constexpr const char* kPassedOn[] = {"never", "to the coordinator", "to a host", "between agents only"};
  const std::string could_not = *rule.what != '\0' ? std::string(" (could not ") + rule.what + ")" : "";
  return std::string("needs ") + kNeeds[static_cast<std::size_t>(rule.needs)] + ", passed on " +
         kPassedOn[static_cast<std::size_t>(rule.passed_on)] + could_not;
}

std::string text(const Verb& verb) {
  static constexpr const char* kAudits[] = {"", ", audited by an event", ", audited by its entry"};
  return std::string(to_string(verb.role)) + (verb.judged == Judged::by_handler ? " (judged by its handler)" : "") +
         kAudits[static_cast<std::size_t>(verb.audit)] + (verb.from_task ? ", also from inside a task" : "") + "; " + text(verb.rule) +
         (verb.rule_of_job != nullptr ? "; of one job " + text(*verb.rule_of_job) : "");
}

std::string line(wire::MessageType type, const char* name, const std::string& is) {
  return std::to_string(static_cast<int>(type)) + " " + name + ": " + is + "\n";
}

// After an intended change: run once with DTRAIN_UPDATE_GOLDEN=1, and say in the commit why these callers may ask. A number never changes.
TEST(Verbs, EachRowIsAsReviewed) {
  std::string rows;
#define REPLY(name) rows += line(wire::MessageType::name, #name, "a reply");
#define REQUEST(name) rows += line(wire::MessageType::name, #name, text(verbs::name));
#define BY_AGENT(name) rows += line(wire::MessageType::name, #name, "the agent's own");
  DTRAIN_MESSAGE_TYPES(REPLY, REQUEST, BY_AGENT)
#undef REPLY
#undef REQUEST
#undef BY_AGENT
  const std::string path = std::string(DTRAIN_SOURCE_DIR) + "/tests/golden/node/verbs.txt";
  if (std::getenv("DTRAIN_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << rows;
  std::ostringstream reviewed;
  reviewed << std::ifstream(path).rdbuf();
  EXPECT_EQ(rows, reviewed.str());
}

TEST(Verbs, EachIsFoundByItsNumberAndNoReplyIs) {
#define FOUND(name) EXPECT_EQ(verb_of(wire::MessageType::name), &verbs::name) << #name;
#define NOT_FOUND(name) EXPECT_EQ(verb_of(wire::MessageType::name), nullptr) << #name;
  DTRAIN_MESSAGE_TYPES(NOT_FOUND, FOUND, NOT_FOUND)
#undef FOUND
#undef NOT_FOUND
  EXPECT_EQ(verb_of(wire::MessageType::none), nullptr);
  EXPECT_EQ(verb_of(static_cast<wire::MessageType>(255)), nullptr);
}

}  // namespace
}  // namespace dtrain::node
